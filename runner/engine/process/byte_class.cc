#include "runner/engine/process/byte_class.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include "api/ipc/snapshot_link.h"
#include "runner/kernels/matmul.h"

namespace quire::runner::engine {

std::string ByteClass(const cache::Layout& layout, int32_t context) {
  std::string text = fmt::format("1 {} {} context={} page={}", kernels::InstructionSet(),
                                 gnu_get_libc_version(), context, layout.page_tokens);
  for (const cache::AttentionGroup& group : layout.groups) {
    text +=
        fmt::format(" a{}.{}.{}.{}.{}{}.{}", group.layers, group.kv_heads, group.head_dim,
                    static_cast<int>(group.element), group.window, group.chunked ? "c" : "", group.latent);
    if (group.stride > 1) text += fmt::format("/{}", group.stride);
  }
  for (const cache::RecurrentLayer& layer : layout.recurrent) {
    text += fmt::format(" r{}.{}.{}.{}.{}", layer.conv_tail, layer.conv_dim, layer.delta_heads,
                        layer.delta_value_dim, layer.delta_key_dim);
  }
  if (!layout.recurrent.empty() && layout.stored_state != cache::ElementType::kF32) {
    text += fmt::format(" s{}", static_cast<int>(layout.stored_state));
  }
  return text.substr(0, api::ipc::kSnapshotTextMax);
}

}  // namespace quire::runner::engine
