// Loaders of model families, one or more per file of that name.
#pragma once

#include <memory>

#include "api/base/error.h"
#include "runner/models/draft_model.h"
#include "runner/models/model.h"

namespace quire::runner::models {

using ModelLoader = api::Result<std::unique_ptr<Model>>(std::shared_ptr<const weights::ModelFiles> files);

// AFMoE (Trinity): norms before and behind, a gate of attention's results, positions in layers with a window
// alone; experts.
ModelLoader LoadAfmoe;

// Apertus: Llama with plain feed-forward layers of the activation xIELU and norms of each query and key head.
ModelLoader LoadApertus;

// Arcee (AFM): Llama with plain feed-forward layers of squared ReLUs.
ModelLoader LoadArcee;

// BitNet: Llama with squared ReLUs as gates and a norm before the last matrix of each part.
ModelLoader LoadBitNet;

// Cohere (Command R, R+): attention and feed-forward side by side behind one layer norm; R+ also has layer
// norms of each query and key head.
ModelLoader LoadCohere;
// Cohere 2 (Command R7B, Command A): attention and feed-forward side by side behind one layer norm, in three
// of four layers with a window and rotated pairs that lie side by side, in the fourth without either.
ModelLoader LoadCohere2;

// Ling 1 and 2, Sarvam-MoE: Llama's attention, in version 2 with norms of each query and key head; experts.
ModelLoader LoadBailingMoe;

// Ling 3: delta nets with a decay of each channel, and latent attention whose heads are gated; experts. Cache
// layout as Kimi Linear's.
ModelLoader LoadBailingHybrid;

// Cohere 2 with experts: the same beside a mixture whose shared expert is averaged with the others.
ModelLoader LoadCohere2Moe;

// dots.llm1: Qwen3's attention, DeepSeek V3's experts.
ModelLoader LoadDots1;

// ERNIE 4.5: Llama with rotated pairs that lie side by side; with experts in some layers.
ModelLoader LoadErnie45, LoadErnie45Moe;

// DeepSeek V4: a residual of several streams; one key for all heads, which is its value too, in a window and
// for blocks of tokens before, of which some layers choose; experts of the first layers by token. Cache
// layout: a window group, and for each rate a group of blocks and one of what waits for its block.
ModelLoader LoadDeepSeekV4;

// Hunyuan 4: DeepSeek V3.2's attention with sinks and a gate, and a residual of several streams.
ModelLoader LoadHyV4;

// Qwen4-Exp (Qwen3.8-Flash-Next): Qwen3.5's layers around a residual of several streams, attention to chosen
// blocks of tokens, embeddings of n-grams. Cache layout: attention, its indexer's rows, a recurrent layer for
// each delta net and two for each layer with n-grams.
ModelLoader LoadQwen4Exp;

// Bamba: Granite's hybrid without its multipliers and experts, with positions.
ModelLoader LoadBamba;

// EXAONE 4: norms behind attention and feed-forward, and of each query and key head. With windows, the layers
// without one have no positions.
ModelLoader LoadExaone4;
// The same with norms before, and experts.
ModelLoader LoadExaoneMoe;

// Falcon: attention and plain feed-forward layers side by side behind one layer norm (7B), behind one each
// (40B) or one after the other.
ModelLoader LoadFalcon;

// Falcon-H1: attention and Mamba-2 side by side in every layer. Cache layout: one full-attention group, one
// recurrent layer per layer.
ModelLoader LoadFalconH1;

// Gemma: Llama with GeGLU, embeddings scaled by the root of their size and zero-centered norms.
ModelLoader LoadGemma;

// Gemma 2 and 3: sandwiched norms, GeGLU, and sliding between full attention. In Gemma 2 every other layer
// slides; scores and logits are capped. In Gemma 3 five of six layers slide, with rotary angles of their own;
// query and key heads are normed.
ModelLoader LoadGemma2, LoadGemma3;

// Gemma 3n: a residual of several streams, low-rank additions beside attention, each layer's own inputs from
// the token, gates that are cut off, keys shared between layers. Cache layout as Gemma 4's.
ModelLoader LoadGemma3n;

// Gemma 4: sliding and full attention with heads of two sizes, keys shared between layers, inputs of each
// layer's own from the token, experts beside the feed-forward layer: each where a model has it. Cache layout:
// one group per kind of attention; layers that share keys have no binding of their own.
ModelLoader LoadGemma4;

// Gemma 4's assistant: a small Gemma 4 whose layers have no keys of their own. Its sliding and full layers
// attend to what the target's last layer of that kind has cached, all of it.
api::Result<std::unique_ptr<DraftModel>> LoadGemma4Assistant(std::shared_ptr<const weights::ModelFiles> files,
                                                             const Model& target);

// Granite 3 and 4, dense: Llama with multipliers of embeddings, residual additions, scores and logits.
ModelLoader LoadGranite;

// Granite with windows: attention sinks in all layers, a rotary base of each layer or none; dense or with
// experts.
ModelLoader LoadGraniteSwa;

// Granite 3 with experts, with a shared one or without.
ModelLoader LoadGraniteMoe;

// Granite 4 with state-space layers: Mamba-2 or attention, then experts or a shared MLP. Cache layout: one
// full-attention group, one recurrent layer per state-space layer.
ModelLoader LoadGraniteHybrid;

// Hunyuan, dense and with experts beside a shared one: norms of each query and key head behind their
// rotation.
ModelLoader LoadHunyuanDense, LoadHunyuanMoe;

// Jamba: Mamba-1 or attention without positions, then experts or an MLP. Cache layout as Granite's.
ModelLoader LoadJamba;

// Kimi Linear: delta nets with a decay of each channel, and latent attention without positions; experts
// behind a dense layer. Cache layout: one latent group, one recurrent layer per delta net.
ModelLoader LoadKimiLinear;

// Laguna: heads of each layer's own number, whose results are gated by a softplus; experts.
ModelLoader LoadLaguna;

// LongCat-Flash: two halves of latent attention and feed-forward layer, with experts beside them, some of
// which give their input. Cache layout: one latent group with two layers for each of the model.
ModelLoader LoadLongcatFlash;

// MiMo-V2: layers with a window have sinks and KV heads of their own number; values are smaller than keys;
// experts.
ModelLoader LoadMimoV2;

// MiniCPM 3: latent attention, multipliers of embeddings, residual additions and logits.
ModelLoader LoadMiniCpm3;

// LFM2 and LFM2-MoE: blocks of a gated short convolution or grouped-query attention, each followed by a
// SwiGLU or a mixture of them. Cache layout: one full-attention group that holds the attention layers in
// order, one recurrent layer per convolution.
ModelLoader LoadLfm2;

// Llama 2 to 3.3, with llama3 and YaRN scaling. GGUF files call many a family "llama", Mistral among them.
ModelLoader LoadLlama;

// Llama 4: three of four layers attend to their chunk alone, the fourth has no positions. Experts multiply
// what the router has scaled, beside a shared one. Cache layout: a chunked group and a full-attention group.
ModelLoader LoadLlama4;

// Mamba and Falcon-Mamba: state-space layers of Mamba-1 alone. Cache layout as Mamba-2's.
ModelLoader LoadMamba;

// Mamba-2: state-space layers alone. Cache layout: one recurrent layer per layer, no attention group.
ModelLoader LoadMamba2;

// Mistral: Llama with a sliding window in every layer, unless layer_types say otherwise.
ModelLoader LoadMistral;

// MiniMax-M2: norms of all query heads and all key heads of a row, partial rotation, experts.
ModelLoader LoadMiniMaxM2;

// MiniMax-M3: norms of each head, experts with OpenAI's clamped SwiGLU, and in most layers an indexer that
// chooses blocks for each KV head. Cache layout: a group of index keys besides.
ModelLoader LoadMiniMaxM3;

// MiniMax-Text-01, MiniMax-M1: lightning attention, linear with a constant decay per head, or full attention,
// and experts; the residual stream is what the norms make of it. Cache layout: one full-attention group, one
// recurrent layer per lightning attention.
ModelLoader LoadMiniMax;

// Ministral 3: Mistral with queries that grow with their position; and the multimodal checkpoints of it and
// of Mistral Small 3.1.
ModelLoader LoadMinistral3, LoadMistral3, LoadMistral4;

// nanochat: norms without weights, also of the embedding, plain feed-forward layers of squared ReLUs, pairs
// that turn the other way.
ModelLoader LoadNanoChat;

// Nemotron, dense: zero-centered layer norms, squared ReLUs, half of each head is rotated.
ModelLoader LoadNemotron;

// Nemotron-H, Nemotron Nano 2 and 3: layers of one part each, Mamba-2, attention without positions, or a
// feed-forward layer, some with experts. Cache layout: one full-attention group, one recurrent layer per
// state-space layer; feed-forward layers have no binding.
ModelLoader LoadNemotronH;

// OLMo 2 and 3: norms behind attention and feed-forward, and of all query heads and all key heads of a row.
// In OLMo 3, three of four layers have a window.
ModelLoader LoadOlmo2;

// OLMoE: Llama with experts and norms of all query heads and all key heads of a row; FlexOlmo: with OLMo 2's
// norms.
ModelLoader LoadOlmoe, LoadFlexOlmo;

// OLMo-Hybrid: gated delta nets behind norms, and attention before them. Cache layout: one full-attention
// group, one recurrent layer per delta net.
ModelLoader LoadOlmoHybrid;

// Phi-3, Phi-3.5 and Phi-4: Llama with fused projections, partial rotation and LongRoPE.
ModelLoader LoadPhi3;

// PLaMo 2: state spaces whose inputs are projections of what was convolved, and attention with a window;
// norms before and behind each part. Cache layout: one group per window, one recurrent layer per state space.
ModelLoader LoadPlamo2;

// Phi-3.5-MoE: layer norms, biases, experts chosen by a sparse mixer.
ModelLoader LoadPhiMoe;

// DeepSeek V2, V3, R1, Kimi K2 and GLM-4.7-Flash: latent attention, experts in groups. Cache layout: one
// latent group.
ModelLoader LoadDeepSeek;
// DeepSeek V3.2 and GLM-5: the same, and an indexer that chooses the tokens that a layer sees. Cache layout:
// a group of index keys besides.
ModelLoader LoadDeepSeekV32, LoadGlmMoeDsa;
// DeepSeek of 2024: Llama with experts.
ModelLoader LoadDeepSeekV1;

// GLM-4, dense: half of each head is rotated, pairs lie side by side; in 2025's with norms around both parts.
ModelLoader LoadGlm, LoadGlm4;

// GLM-4.5 and GLM-4.6: half of each head is rotated, experts behind dense layers.
ModelLoader LoadGlm4Moe;

// GPT-2: learned positions, layer norms, plain feed-forward layers, biases. GPT-BigCode: the same with one KV
// head.
ModelLoader LoadGpt2, LoadGptBigCode;

// GPT-NeoX and Pythia: attention and plain feed-forward side by side behind a layer norm each, partly rotated
// heads.
ModelLoader LoadGptNeoX;

// gpt-oss: attention sinks, a window in every other layer, experts with biases and a clamped SwiGLU, in MXFP4
// as published.
ModelLoader LoadGptOss;

// Mixtral: Mistral with experts. GGUF calls it "llama"; LoadLlama passes files with experts on.
ModelLoader LoadMixtral;

// GroveMoE: Qwen3-MoE with a second, small expert for each group of experts.
ModelLoader LoadGroveMoe;

// Muse Glimmer: the embedding is normed; attention's results have gates; one layer of four sees all, without
// positions.
ModelLoader LoadMuseGlimmer;

// Spark 2.5: a factor for each head's result; layers with a window are rotated by other angles.
ModelLoader LoadSpark;

// Step 3.5: heads of each layer's own number with gates; experts with limits.
ModelLoader LoadStep35;

// SmallThinker: experts of ReLU gates, chosen by what their layer sees.
ModelLoader LoadSmallThinker;

// PLaMo 3: norms around attention and feed-forward, and of each query and key head; windows.
ModelLoader LoadPlamo3;

// Qwen2-MoE: Qwen2 with experts beside a shared one with a gate.
ModelLoader LoadQwen2Moe;

// Qwen3-MoE: Qwen3 with experts in all layers or some.
ModelLoader LoadQwen3Moe;

// Qwen2, Qwen2.5 and Qwen3: Llama with biases of q, k and v, or with norms of each query and key head.
ModelLoader LoadQwen2, LoadQwen3;

// The text models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: the same with M-RoPE.
ModelLoader LoadQwen2Vl, LoadQwen3Vl, LoadQwen3VlMoe;

// Qwen3-Next and Qwen3.5, dense and with experts: three gated delta nets to each gated attention. Cache
// layout: one full-attention group, one recurrent layer per delta net.
ModelLoader LoadQwen3Next;

// The checkpoint's "mtp." tensors, or the first block of a GGUF file's nextn_predict_layers; null where there
// are none, or the target is of another family.
api::Result<std::unique_ptr<MtpLayer>> LoadQwen3NextMtp(std::shared_ptr<const weights::ModelFiles> files,
                                                        const Model& target, api::KvType kv_type);

// RWKV-7: time mixes, whose state is a matrix per head, and channel mixes; both see a row beside the one
// before it. ARWKV has gated feed-forward layers in place of channel mixes. Cache layout: one recurrent layer
// per layer, no attention group.
ModelLoader LoadRwkv7;

// Seed-OSS: Llama with biases of q, k and v.
ModelLoader LoadSeedOss;

// SmolLM3: Llama without positions in every fourth layer.
ModelLoader LoadSmolLm3;

// StarCoder2: layer norms, plain feed-forward layers, biases everywhere.
ModelLoader LoadStarCoder2;

// Zamba2: Mamba-2, before some layers a block of attention and feed-forward whose weights several layers
// share, with adapters of each use. Cache layout: one full-attention group with a layer per use, one
// recurrent layer per layer.
ModelLoader LoadZamba2;

// BLOOM and MPT: layer norms, plain feed-forward layers, ALiBi in place of positions.
ModelLoader LoadBloom, LoadMpt;

// CWM: Llama with windows in three of four layers. Helium: Llama with rotated pairs that lie side by side.
// EXAONE 3: Llama.
ModelLoader LoadCwm, LoadHelium, LoadExaone;

// DBRX: layer norms, experts, queries, keys and values clipped.
ModelLoader LoadDbrx;

// GPT-J: attention and plain feed-forward side by side behind one layer norm, partly rotated heads.
ModelLoader LoadGptJ;

// HyperCLOVA X: Granite, with norms behind attention and feed-forward too.
ModelLoader LoadHyperClovaX;

// Hunyuan 3: Qwen3's attention, experts with sigmoid scores.
ModelLoader LoadHyV3;

// Jais 2: layer norms, plain feed-forward layers of squared ReLUs, biases.
ModelLoader LoadJais2;

// Mellum 2: Qwen3-MoE with windows and rotary angles per kind of layer.
ModelLoader LoadMellum;

// GGUF files alone, of relatives of Llama. Arctic: experts beside the feed-forward layers. Baichuan:
// 13B has ALiBi. CodeShell: layer norms, plain feed-forward layers. Grok 1: experts, capped scores.
// Jais: layer norms, ALiBi. Maincoder: norms of each query and key head behind their rotation.
// MiniCPM: Granite's multipliers. Nanbeige: the layers run several times. Orion: layer norms. Pangu
// Embedded: biases. PLaMo: attention and feed-forward side by side behind one norm. PLM: latent
// attention, plain feed-forward layers. Qwen: biases. Refact: ALiBi.
ModelLoader LoadArctic, LoadNanbeige, LoadBaichuan, LoadCodeShell, LoadGrok, LoadJais, LoadMaincoder,
    LoadMiniCpm, LoadOrion, LoadPanguEmbedded, LoadPlamo, LoadPlm, LoadQwen, LoadRefact;

// GGUF files alone. OpenELM: Llama whose layers differ in size, with norms of each query and key head.
// Deci: some layers have no attention, a matrix in its place or no feed-forward layer.
ModelLoader LoadOpenElm, LoadDeci;

// OLMo: Llama with layer norms that have no weights.
ModelLoader LoadOlmo;

// Phi-1, Phi-1.5, Phi-2: attention and plain feed-forward side by side behind one layer norm, partly rotated
// heads.
ModelLoader LoadPhi;

// Solar Open: GLM-4.5 without norms of heads and dense layers.
ModelLoader LoadSolarOpen;

// StableLM: Llama with layer norms and partly rotated heads; in some models side by side, as Cohere.
ModelLoader LoadStableLm;

}  // namespace quire::runner::models
