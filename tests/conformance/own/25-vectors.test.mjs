// Embedding and reranking with the clients that indexes are built with: MODEL, a decoder, and a small encoder
// and a small reranker, whose checkpoints lie in ENCODER_FOLDER and RERANKER_FOLDER. QUIRE_BIN names the
// folder of the programs.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before } from 'node:test';
import OpenAI from 'openai';
import { Ollama } from 'ollama';
import { OllamaEmbeddings } from '@langchain/ollama';
import { OpenAIEmbeddings } from '@langchain/openai';
import { OpenAIEmbedding } from '@llamaindex/openai';
import { OllamaEmbedding } from '@llamaindex/ollama';
import { CohereClientV2 } from 'cohere-ai';
import { T, assert, BASE, MODEL, U, get, post } from '../lib/h.mjs';

const ENCODER = 'vectors-encoder'; const RANKER = 'vectors-reranker';
const EMBEDS = { env: 'ENCODER_FOLDER', loopback: true }; const RANKS = { env: 'RERANKER_FOLDER', loopback: true };
const quire = (...args) => spawnSync(path.join(process.env.QUIRE_BIN ?? '', 'quire'), args, { env: { ...process.env, OLLAMA_HOST: U.host }, encoding: 'utf8' });
const FOLDERS = Object.entries({ [ENCODER]: process.env.ENCODER_FOLDER, [RANKER]: process.env.RERANKER_FOLDER }).filter(([, folder]) => folder);
before(() => FOLDERS.forEach(([model, folder]) => {
  fs.writeFileSync(path.join(folder, 'Modelfile'), `FROM ${folder}\n`);
  const made = quire('create', model, '-f', path.join(folder, 'Modelfile')); assert.equal(made.status, 0, made.stderr);
}));
after(() => FOLDERS.forEach(([model]) => quire('rm', model)));
const TEXTS = ['hello world!', 'what is a panda?', 'the 3 quick foxes'];
const DOCUMENTS = ['hi', 'the giant panda is a bear', 'it is four'];
const near = (a, b, by = 1e-6) => { assert.equal(a.length, b.length); a.forEach((x, i) => assert.ok(Math.abs(x - b[i]) <= by, `${i}: ${x} ${b[i]}`)); };
const length = (v) => Math.hypot(...v);
const unit = (v) => { const by = length(v); return v.map((x) => x / by); };
const direct = async (model, input) => (await post('/api/embed', { model, input })).json.embeddings;
const openai = new OpenAI({ baseURL: `${BASE}/v1`, apiKey: 'x', maxRetries: 0 });
const BOTH = () => [ENCODER, MODEL];

T('SHOULD', 'openai client: an encoder and a decoder embed, as floats and as base64', EMBEDS, async () => {
  for (const model of BOTH()) {
    const vectors = await direct(model, TEXTS);
    for (const encoding_format of ['float', 'base64', undefined]) {
      const reply = await openai.embeddings.create({ model, input: TEXTS, ...(encoding_format && { encoding_format }) });
      assert.equal(reply.data.length, TEXTS.length);
      reply.data.forEach((one, i) => {
        const got = typeof one.embedding === 'string' ? [...new Float32Array(new Uint8Array(Buffer.from(one.embedding, 'base64')).buffer)] : one.embedding;
        near(got, vectors[i]);
      });
      assert.ok(reply.usage.prompt_tokens > 0);
    }
  }
});

T('SHOULD', 'openai client: dimensions are cut and normalized again', EMBEDS, async () => {
  for (const model of BOTH()) {
    const [whole] = await direct(model, [TEXTS[0]]);
    const reply = await openai.embeddings.create({ model, input: TEXTS[0], dimensions: 8, encoding_format: 'float' });
    near(reply.data[0].embedding, unit(whole.slice(0, 8)), 1e-5);
  }
});

T('SHOULD', 'openai client: arrays of token ids embed as the text does that they come from', EMBEDS, async () => {
  for (const model of BOTH()) {
    const { json } = await post('/api/embed', { model, input: 'hello' });
    const text = (await post('/tokenize', { model, content: 'hello', add_special: true })).json.tokens;
    const tokens = model === ENCODER ? [...text, 3] : text; // [SEP]
    const reply = await openai.embeddings.create({ model, input: tokens, encoding_format: 'float' });
    near(reply.data[0].embedding, json.embeddings[0]);
    const several = await openai.embeddings.create({ model, input: [tokens, tokens], encoding_format: 'float' });
    assert.equal(several.data.length, 2);
  }
});

T('SHOULD', 'openai client: wrong requests are typed errors that name the field', EMBEDS, async () => {
  for (const [body, status, field] of [
    [{ model: ENCODER, input: 'a', dimensions: 1 << 20 }, 400, 'dimensions'], [{ model: ENCODER, input: [1 << 30] }, 400, 'input'],
    [{ model: ENCODER }, 400, 'input'], [{ model: 'nobody-has-this', input: 'a' }, 404, 'nobody-has-this'],
    [{ model: ENCODER, input: 'a', encoding_format: 'int8' }, 400, 'encoding_format']]) {
    const { status: got, json } = await post('/v1/embeddings', body);
    assert.equal(got, status); assert.match(json.error.message, new RegExp(field));
  }
  await assert.rejects(openai.chat.completions.create({ model: ENCODER, messages: [{ role: 'user', content: 'hi' }] }), (e) => e.status === 400);
});

T('SHOULD', 'ollama client: embed, and the old embeddings before their length is made one', EMBEDS, async () => {
  const client = new Ollama({ host: BASE });
  for (const model of BOTH()) {
    const { embeddings } = await client.embed({ model, input: TEXTS });
    near(embeddings[0], (await direct(model, TEXTS))[0]);
    embeddings.forEach((v) => assert.ok(Math.abs(length(v) - 1) < 1e-5));
    const { embedding } = await client.embeddings({ model, prompt: TEXTS[0] });
    near(unit(embedding), embeddings[0], 1e-5);
  }
  await assert.rejects(client.embed({ model: ENCODER, input: 'river '.repeat(200), truncate: false }), /exceeds/);
});

T('SHOULD', '@langchain/ollama and @langchain/openai: queries and documents', EMBEDS, async () => {
  for (const model of BOTH()) {
    const vectors = await direct(model, TEXTS);
    const ollama = new OllamaEmbeddings({ model, baseUrl: BASE });
    const compatible = new OpenAIEmbeddings({ model, apiKey: 'x', configuration: { baseURL: `${BASE}/v1` } });
    for (const client of [ollama, compatible]) {
      near(await client.embedQuery(TEXTS[0]), vectors[0]);
      (await client.embedDocuments(TEXTS)).forEach((v, i) => near(v, vectors[i]));
    }
  }
});

T('SHOULD', 'LlamaIndex: its OpenAI and Ollama embeddings', EMBEDS, async () => {
  for (const model of BOTH()) {
    const vectors = await direct(model, TEXTS);
    const compatible = new OpenAIEmbedding({ model, apiKey: 'x', baseURL: `${BASE}/v1` });
    const ollama = new OllamaEmbedding({ model, config: { host: BASE } });
    for (const client of [compatible, ollama]) {
      // The Ollama class still asks the old route.
      near(unit(await client.getTextEmbedding(TEXTS[0])), vectors[0], 1e-5);
      (await client.getTextEmbeddings(TEXTS)).forEach((v, i) => near(unit(v), vectors[i], 1e-5));
    }
  }
});

T('SHOULD', 'text-embeddings-inference: the model that embeds is described', EMBEDS, async () => {
  const { status, text, json } = await get('/info'); assert.equal(status, 200, text);
  assert.equal(json.model_id.split(':')[0], ENCODER); assert.ok('embedding' in json.model_type);
  assert.ok(json.max_input_length > 0 && json.max_client_batch_size >= 32); assert.equal(json.auto_truncate, false);
  for (const name of ['model_sha', 'model_dtype', 'version']) assert.ok(typeof json[name] === 'string' && json[name], name);
});

T('SHOULD', 'cohere-ai: reranking, its order, top n and errors', RANKS, async () => {
  const cohere = new CohereClientV2({ token: 'x', environment: BASE, maxRetries: 0 });
  const whole = await cohere.rerank({ model: RANKER, query: 'what is a panda?', documents: DOCUMENTS }, { maxRetries: 0 });
  const scores = whole.results.map((r) => r.relevanceScore);
  assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
  assert.deepEqual(new Set(whole.results.map((r) => r.index)), new Set([0, 1, 2]));
  const best = await cohere.rerank({ model: RANKER, query: 'what is a panda?', documents: DOCUMENTS, topN: 1 }, { maxRetries: 0 });
  assert.deepEqual(best.results[0], whole.results[0]);
  const bounded = await cohere.rerank({ model: RANKER, query: 'what is a panda?', documents: ['river '.repeat(200)], maxTokensPerDoc: 4 }, { maxRetries: 0 });
  assert.equal(bounded.results.length, 1);
  await assert.rejects(cohere.rerank({ model: MODEL, query: 'a', documents: ['b'] }, { maxRetries: 0 }), (e) => e.statusCode === 400);
});

T('SHOULD', 'cohere-ai: embedding by type, dimensions, truncation and errors', EMBEDS, async () => {
  const cohere = new CohereClientV2({ token: 'x', environment: BASE, maxRetries: 0 }); const once = { maxRetries: 0 };
  for (const model of BOTH()) {
    const vectors = await direct(model, TEXTS);
    const reply = await cohere.embed({ model, texts: TEXTS, inputType: 'search_document', embeddingTypes: ['float', 'ubinary'] }, once);
    reply.embeddings.float.forEach((v, i) => near(v, vectors[i]));
    assert.equal(reply.embeddings.ubinary[0].length, Math.ceil(vectors[0].length / 8));
    const cut = await cohere.embed({ model, texts: [TEXTS[0]], inputType: 'search_query', outputDimension: 8, embeddingTypes: ['float'] }, once);
    near(cut.embeddings.float[0], unit(vectors[0].slice(0, 8)), 1e-5);
  }
  const long = { model: ENCODER, texts: ['river '.repeat(200)], inputType: 'clustering', embeddingTypes: ['float'] };
  assert.equal((await cohere.embed({ ...long, truncate: 'START' }, once)).embeddings.float.length, 1);
  await assert.rejects(cohere.embed({ ...long, truncate: 'NONE' }, once), (e) => e.statusCode === 400 && /exceeds/.test(e.body?.message));
});

T('SHOULD', 'the dialects of reranking agree', RANKS, async () => {
  const body = { model: RANKER, query: 'what is a panda?', documents: DOCUMENTS };
  const jina = (await post('/v1/rerank', body)).json.results; const cohere = (await post('/v2/rerank', body)).json.results;
  assert.deepEqual(jina.map((r) => [r.index, r.relevance_score]), cohere.map((r) => [r.index, r.relevance_score]));
  for (const { index, relevance_score } of jina) {
    const { json } = await post('/v1/score', { model: RANKER, text_1: body.query, text_2: DOCUMENTS[index] });
    near([json.data[0].score], [relevance_score]);
  }
});
