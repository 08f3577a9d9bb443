// Facts of src/llama-vocab.cpp of llama.cpp 0.7.0 and of published tokenizer.json files; where the two
// differ, the latter hold (normal forms, case folding, merges that are left out for whole pieces).
#include "runner/tokenizer/known_patterns.h"

#include <algorithm>

namespace quire::runner::tokenizer {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|)"
    R"(\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kDigit = R"(\p{N})", kDigits = R"(\p{N}+)", kUpToThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kLineBreak = R"([\r\n])";
constexpr std::string_view kDeepSeekWord =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1})"
    R"(\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5})"
    R"(\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})"
    R"(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b})"
    R"(\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc})"
    R"(\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107})"
    R"(\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134})"
    R"(\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787})"
    R"(\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a})"
    R"(\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2})"
    R"(\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";
constexpr std::string_view kDeepSeekMark =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
constexpr std::string_view kTrailingSpace = R"(\s+$)",
                           kHanAndHangul = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
constexpr std::string_view kHanAndKana = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kYoutuScripts =
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+)"
    R"(|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+)"
    R"(|[\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeekCoderWord = R"(\s?\p{L}+)", kDeepSeekCoderMark = R"(\s?\p{P}+)";
constexpr std::string_view kFalconMark = R"([\p{P}\$\+<=>\^~\|`]+)", kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
constexpr std::string_view kSentinel = "<sentinel:[0-9]+>", kImage = "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z";
constexpr std::string_view kChameleonSpace = R"(([\t\n]|    |  ))",
                           kChameleonMark = R"([\p{P}!-/:-@\[-`{-~])";
// Groups of three digits from the right. \b of the published pattern stands behind a digit here.
constexpr std::string_view kTinyAyaDigits = R"(\d{1,3}(?=(?:\d{3})*(?!\w)))";
constexpr std::string_view kAfmoeDigits = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
constexpr std::string_view kAfmoeScripts =
    R"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{f900}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff})"
    R"(\x{ff65}-\x{ff9f}\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}\x{1000}-\x{109f})"
    R"(\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+)";
constexpr std::string_view kKimi =
    R"(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBeforeThreeDigits = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kUfakzeka =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLines = R"([^\n]+|[\n]+)";
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kMiniCpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using Patterns = const std::string_view[];
constexpr Patterns kOfGpt2 = {kGpt2}, kOfLlama3 = {kLlama3}, kOfQwen2 = {kQwen2}, kOfQwen35 = {kQwen35},
                   kOfO200k = {kO200k}, kOfTekken = {kTekken}, kOfJais2 = {kJais2}, kOfBloom = {kBloom},
                   kOfKimi = {kKimi}, kOfBailing = {kBailing}, kOfSeedCoder = {kSeedCoder},
                   kOfUfakzeka = {kUfakzeka}, kOfExaoneMoe = {kExaoneMoe}, kOfStarcoder = {kDigit, kGpt2},
                   kOfFalcon = {kFalconMark, kGpt2, kThreeDigits}, kOfViking = {kBloom, kDigit},
                   kOfDeepSeekLlm = {kLineBreak,     kDeepSeekWord, kDeepSeekMark,
                                     kTrailingSpace, kHanAndHangul, kDigits},
                   kOfDeepSeekCoder = {kLineBreak, kDeepSeekCoderWord, kDeepSeekCoderMark, kHanAndHangul,
                                       kDigit},
                   kOfDeepSeek3 = {kUpToThreeDigits, kHanAndKana, kDeepSeek3},
                   kOfSpark = {kUpToThreeDigits, kHanAndKana, kSpark, kDigit},
                   kOfYoutu = {kYoutuScripts, kYoutu},
                   kOfChameleon = {kSentinel, kImage, kChameleonSpace, kDigit, kChameleonMark, kGpt2},
                   kOfTinyAya = {kTinyAyaDigits, kO200k}, kOfSuperBpe = {kDigits, kBeforeThreeDigits},
                   kOfAfmoe = {kAfmoeDigits, kAfmoeScripts, kDeepSeek3}, kOfLaguna = {kLines, kQwen2},
                   kOfMiniCpm5 = {kUpToThreeDigits, kMiniCpm5};

constexpr auto kNoForm = NormalForm::kNone, kNfc = NormalForm::kNfc;

// name, patterns, normal form, ignore_merges, add_bos
constexpr KnownPreTokenizer kKnown[] = {
    {"gpt-2", kOfGpt2},
    {"phi-2", kOfGpt2},
    {"jina-es", kOfGpt2},
    {"jina-de", kOfGpt2},
    {"gigachat", kOfGpt2},
    {"jina-v2-es", kOfGpt2},
    {"jina-v2-de", kOfGpt2},
    {"a.x-4.0", kOfGpt2},
    {"mellum", kOfGpt2},
    {"modern-bert", kOfGpt2, kNfc},
    {"exaone4", kOfGpt2},
    {"mpt", kOfGpt2, kNfc},
    {"olmo", kOfGpt2, kNfc},
    {"jais", kOfGpt2},
    {"trillion", kOfGpt2},
    {"granite-docling", kOfGpt2},
    {"llama-bpe", kOfLlama3, kNoForm, true, true},
    {"llama3", kOfLlama3, kNoForm, true, true},
    {"llama-v3", kOfLlama3, kNoForm, true, true},
    {"falcon3", kOfLlama3, kNoForm, true, true},
    {"falcon-h1", kOfLlama3, kNoForm, true, true},
    {"pixtral", kOfLlama3, kNoForm, true, true},
    {"midm-2.0", kOfLlama3, kNoForm, true, true},
    {"lfm2", kOfLlama3, kNoForm, true, true},
    {"jina-v5-nano", kOfLlama3, kNoForm, true, true},
    {"dbrx", kOfLlama3},
    {"smaug-bpe", kOfLlama3},
    {"glm4", kOfLlama3},
    {"chatglm-bpe", kOfLlama3},
    {"jais-2", kOfJais2},
    {"qwen2", kOfQwen2, kNfc},
    {"deepseek-r1-qwen", kOfQwen2},
    {"kormo", kOfQwen2},
    {"f2llmv2", kOfQwen2, kNfc},
    {"megrez", kOfQwen2},
    {"stablelm2", kOfQwen2},
    {"hunyuan", kOfQwen2},
    {"solar-open", kOfQwen2},
    {"grok-2", kOfQwen2},
    {"qwen35", kOfQwen35, kNfc},
    {"gpt-4o", kOfO200k, kNoForm, true},
    {"llama4", kOfO200k, kNoForm, true},
    {"kanana2", kOfO200k, kNoForm, true},
    {"talkie", kOfO200k, kNoForm, true},
    {"minimax-m2", kOfO200k},
    {"granite-embed-multi-97m", kOfO200k, kNoForm, true},
    {"tekken", kOfTekken, kNoForm, true, true},
    {"deepseek-llm", kOfDeepSeekLlm},
    {"deepseek-coder", kOfDeepSeekCoder},
    {"deepseek-v3", kOfDeepSeek3},
    {"hunyuan-dense", kOfDeepSeek3},
    {"joyai-llm", kOfDeepSeek3},
    {"hy_v4", kOfDeepSeek3},
    {"spark2_5", kOfSpark},
    {"youtu", kOfYoutu, kNoForm, true},
    {"falcon", kOfFalcon},
    {"starcoder", kOfStarcoder},
    {"refact", kOfStarcoder},
    {"command-r", kOfStarcoder, kNfc},
    {"smollm", kOfStarcoder},
    {"codeshell", kOfStarcoder},
    {"exaone", kOfStarcoder},
    {"minerva-7b", kOfStarcoder},
    {"mellum2", kOfStarcoder},
    {"bloom", kOfBloom},
    {"poro-chat", kOfBloom},
    {"gpt3-finnish", kOfBloom},
    {"viking", kOfViking},
    {"chameleon", kOfChameleon, kNoForm, false, true},
    {"tiny_aya", kOfTinyAya},
    {"cohere2moe", kOfTinyAya},
    {"kimi-k2", kOfKimi},
    {"superbpe", kOfSuperBpe},
    {"bailingmoe", kOfBailing},
    {"bailingmoe2", kOfBailing},
    {"llada-moe", kOfBailing},
    {"seed-coder", kOfSeedCoder},
    {"ufakzeka", kOfUfakzeka},
    {"afmoe", kOfAfmoe},
    {"laguna", kOfLaguna},
    {"exaone-moe", kOfExaoneMoe},
    {"minicpm5", kOfMiniCpm5, kNoForm, true},
    {"gemma4", {}},
    {"sarvam-moe", {}},
    {"granite-embed-multi-311m", {}},
};

struct Unsupported {
  std::string_view name;
  std::string_view why;
};
constexpr Unsupported kUnsupported[] = {
    {"whitespace", "its tokens are no bytes"},
    {"jina-v1-en", "it needs separators around a text"},
    {"jina-v2-code", "it needs separators around a text"},
    {"roberta-bpe", "it needs separators around a text"},
    {"default", "the vocabulary does not tell which one it is"},
};

}  // namespace

const std::string_view kGpt2Pattern = kGpt2;

const KnownPreTokenizer* FindPreTokenizer(std::string_view name) {
  const auto* found = std::ranges::find(kKnown, name, &KnownPreTokenizer::name);
  return found == std::end(kKnown) ? nullptr : found;
}

std::vector<std::string_view> KnownPreTokenizerNames() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kKnown));
  for (const KnownPreTokenizer& known : kKnown) names.push_back(known.name);
  return names;
}

std::string_view WhyUnsupported(std::string_view name) {
  const auto* found = std::ranges::find(kUnsupported, name, &Unsupported::name);
  return found == std::end(kUnsupported) ? std::string_view() : found->why;
}

}  // namespace quire::runner::tokenizer
