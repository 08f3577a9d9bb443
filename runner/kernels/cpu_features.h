// What this x86-64 processor has beside what Highway's targets say.
#pragma once

namespace quire::runner::kernels {

bool HasAvx512Vnni();
bool HasAvxVnni();

}  // namespace quire::runner::kernels
