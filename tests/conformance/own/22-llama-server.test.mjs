// llama.cpp's routes, the OpenAPI document, compressed bodies and the headers of limits, as clients use them.
import zlib from 'node:zlib';
import OpenAI from 'openai';
import { T, assert, BASE, MODEL, U1, call, get, post, ok, oaiErr, psFind } from '../lib/h.mjs';
const client = new OpenAI({ baseURL: BASE, apiKey: 'x', maxRetries: 0 });  // without /v1
const complete = (body) => post('/completion', { model: MODEL, prompt: 'Once upon a time', temperature: 0, n_predict: 8, ...body });

T('MUST', 'openai: chats, responses and models without /v1', {}, async () => {
  const answer = await client.chat.completions.create({ model: MODEL, messages: U1('Hi'), max_tokens: 8, temperature: 0 });
  assert.equal(answer.object, 'chat.completion'); assert.equal(answer.timings.predicted_n, answer.usage.completion_tokens);
  const stream = await client.chat.completions.create({ model: MODEL, messages: U1('Hi'), max_tokens: 8, temperature: 0, stream: true });
  let text = ''; let timings; for await (const chunk of stream) { text += chunk.choices[0]?.delta?.content ?? ''; timings = chunk.timings ?? timings; }
  assert.equal(text, answer.choices[0].message.content); assert.ok(timings.prompt_ms > 0);
  assert.equal((await client.responses.create({ model: MODEL, input: 'Hi', max_output_tokens: 8 })).object, 'response');
  assert.ok((await client.models.list()).data.some((model) => model.id.startsWith(MODEL)));
});
T('MUST', '/completion: text, ids and both in a row; several prompts', {}, async () => {
  const whole = ok(await complete({ return_tokens: true })); assert.equal(whole.stop, true); assert.ok(['eos', 'limit', 'word'].includes(whole.stop_type));
  assert.equal(whole.tokens.length, whole.tokens_predicted); assert.equal(whole.timings.predicted_n, whole.tokens_predicted); assert.ok(whole.generation_settings.temperature === 0);
  const { tokens } = ok(await post('/tokenize', { model: MODEL, content: 'Once upon a time', add_special: true }));
  assert.equal(ok(await complete({ prompt: tokens })).content, whole.content);
  const half = ok(await post('/tokenize', { model: MODEL, content: ' a time' })).tokens;
  const list = ok(await complete({ prompt: [['Once upon', ...half], 'Once upon a time'] })); assert.equal(list[1].content, whole.content); assert.equal(list[0].index, 0);
});
T('MUST', '/completion: streams, and response_fields', {}, async () => {
  const whole = ok(await complete()); const reply = await complete({ stream: true });
  const events = reply.text.split('\n').filter((line) => line.startsWith('data: ')).map((line) => JSON.parse(line.slice(6)));
  assert.equal(events.map((event) => event.content).join(''), whole.content); assert.equal(events.at(-1).stop, true); assert.ok(!reply.text.includes('[DONE]'));
  assert.deepEqual(Object.keys(ok(await complete({ response_fields: ['content', 'timings/prompt_n', 'none'] }))), ['content', 'timings/prompt_n']);
});
T('MUST', 'a grammar and a schema constrain every route', {}, async () => {
  const grammar = 'root ::= "<" [a-c]{3} ">" | "(" root ")"';
  for (const seed of [1, 2, 3]) {
    assert.match(ok(await complete({ grammar, temperature: 1, seed, n_predict: 64 })).content, /^\(*<[abc]{3}>\)*|^\(+/);
    const chat = ok(await post('/v1/chat/completions', { model: MODEL, messages: U1('Hi'), grammar: 'root ::= "yes" | "no"', seed }));
    assert.ok(['yes', 'no'].includes(chat.choices[0].message.content));
  }
  assert.ok([1, 2].includes(JSON.parse(ok(await complete({ json_schema: { enum: [1, 2] }, n_predict: 20 })).content)));
  oaiErr(await complete({ grammar: 'root ::= missing' }), 400); oaiErr(await complete({ grammar: 'root ::= "a"', json_schema: {} }), 400);
});
T('MUST', 'what would change the answer and is not supported is refused by name', {}, async () => {
  for (const [field, value] of Object.entries({ lora: [{ id: 0, scale: 1 }], post_sampling_probs: true, grammar_lazy: true, dynatemp_range: 0.5 })) {
    const reply = await complete({ [field]: value }); oaiErr(reply, 400); assert.ok(reply.text.includes(field));
  }
});
T('MUST', 'slots are saved, restored and erased', {}, async () => {
  const first = ok(await complete({ id_slot: 2 })); const name = `conf-${process.pid}`;
  const saved = ok(await post('/slots/2?action=save', { model: MODEL, filename: name })); assert.ok(saved.n_saved >= first.tokens_evaluated); assert.equal(saved.filename, name);
  assert.equal(ok(await post('/slots/2?action=erase', { model: MODEL })).n_erased, saved.n_saved);
  assert.equal(ok(await post('/slots/2?action=restore', { model: MODEL, filename: name })).n_restored, saved.n_saved);
  assert.equal(ok(await complete({ id_slot: 2 })).content, first.content);
  oaiErr(await post('/slots/2?action=restore', { model: MODEL, filename: 'none' }), 404);
});
T('MUST', '/props has slots and default parameters', {}, async () => {
  const props = ok(await get(`/props?model=${MODEL}`)); assert.ok(props.total_slots >= 1);
  for (const name of ['temperature', 'top_k', 'top_p', 'min_p', 'n_predict', 'seed']) assert.equal(typeof props.default_generation_settings.params[name], 'number', name);
});
T('MUST', 'the OpenAPI document has the routes', {}, async () => {
  const document = ok(await get('/openapi.json')); assert.match(document.openapi, /^3\.1/);
  for (const path of ['/api/chat', '/v1/chat/completions', '/v1/messages', '/completion', '/infill', '/api/ps']) assert.ok(document.paths[path], path);
});
T('MUST', 'compressed bodies: gzip and zstd are decoded, others are 415', {}, async () => {
  const body = Buffer.from(JSON.stringify({ model: MODEL, prompt: 'Hi', max_tokens: 1 }));
  const send = (bytes, encoding) => fetch(`${BASE}/v1/completions`, { method: 'POST', body: bytes, headers: { 'content-type': 'application/json', 'content-encoding': encoding } });
  assert.equal((await send(zlib.gzipSync(body), 'gzip')).status, 200);
  if (zlib.zstdCompressSync) assert.equal((await send(zlib.zstdCompressSync(body), 'zstd')).status, 200);
  const other = await send(zlib.brotliCompressSync(body), 'br'); assert.equal(other.status, 415); assert.equal((await other.json()).error.type, 'invalid_request_error');
  assert.equal((await send(body, 'gzip')).status, 400);
  assert.equal((await send(zlib.gzipSync(Buffer.alloc((100 << 20) + 1, 0x20)), 'gzip')).status, 413);
});
T('MUST', 'CORS: clients\' headers are allowed, ids and limits can be read', {}, async () => {
  const asked = 'authorization,x-stainless-any-new-one,openai-organization,openai-project';
  const reply = await fetch(`${BASE}/v1/chat/completions`, { method: 'OPTIONS', headers: { origin: 'http://localhost:3000', 'access-control-request-method': 'POST', 'access-control-request-headers': asked } });
  const allowed = reply.headers.get('access-control-allow-headers').toLowerCase().split(','); for (const name of asked.split(',')) assert.ok(allowed.includes(name), name);
  const read = await fetch(`${BASE}/v1/models`, { headers: { origin: 'http://localhost:3000' } });
  for (const name of ['x-request-id', 'retry-after']) assert.ok(read.headers.get('access-control-expose-headers').toLowerCase().includes(name));
});
T('MUST', '/api/ps: memory in use and what it may grow to; 404 as the client named it', {}, async () => {
  ok(await post('/api/generate', { model: MODEL, prompt: 'Hi', stream: false, options: { num_predict: 1 } }));
  const model = await psFind(); assert.ok(model.size > 1e6 && model.size <= model.size_max * 1.5, `${model.size} of ${model.size_max}`);
  for (const path of ['/api/chat', '/api/show', '/api/generate']) assert.equal((await post(path, { model: 'Nope', messages: U1('x'), prompt: 'x' })).json.error, "model 'Nope' not found");
  assert.equal((await call('DELETE', '/api/delete', { model: 'nope:x' })).json.error, "model 'nope:x' not found");
});
