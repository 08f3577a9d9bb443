// API shapes of other servers: Cohere's chat, text-embeddings-inference at the root, token ids to embed, many
// alternatives.
import { CohereClientV2 } from 'cohere-ai';
import { T, assert, BASE, MODEL, post } from '../lib/h.mjs';
const CHATS = { cap: 'completion' }; const once = { maxRetries: 0 };
const cohere = new CohereClientV2({ token: 'x', environment: BASE, ...once });
const ask = { model: MODEL, messages: [{ role: 'user', content: 'Say hi.' }], maxTokens: 12, temperature: 0, seed: 1 };
const tools = [{ type: 'function', function: { name: 'look', description: 'Look', parameters: { type: 'object', properties: { at: { type: 'string' } }, required: ['at'] } } }];
const streamed = async (request) => {
  const events = [];
  for await (const event of await cohere.chatStream(request, once)) events.push(event);
  return events;
};

T('SHOULD', 'cohere-ai: a chat, whole and as a stream', CHATS, async () => {
  const whole = await cohere.chat(ask, once);
  assert.ok(['COMPLETE', 'MAX_TOKENS'].includes(whole.finishReason), whole.finishReason);
  assert.ok(whole.usage.tokens.inputTokens > 0 && whole.usage.tokens.outputTokens > 0);
  const events = await streamed(ask);
  assert.deepEqual([events[0].type, events.at(-1).type], ['message-start', 'message-end']);
  const text = events.filter((e) => e.type === 'content-delta').map((e) => e.delta.message.content.text ?? '').join('');
  assert.equal(text, whole.message.content.filter((c) => c.type === 'text').map((c) => c.text).join(''));
  assert.equal(events.at(-1).delta.finishReason, whole.finishReason);
  const [, content, ...rest] = events.map((e) => e.type);
  assert.equal(content, 'content-start'); assert.equal(rest.at(-2), 'content-end');
  const parts = await cohere.chat({ ...ask, messages: [{ role: 'user', content: [{ type: 'text', text: 'Say hi.' }] }] }, once);
  assert.deepEqual(parts.message, whole.message);
});

T('SHOULD', 'cohere-ai: tool calls, their results and formats', CHATS, async () => {
  const forced = { ...ask, tools, toolChoice: 'REQUIRED', maxTokens: 80 };
  const whole = await cohere.chat(forced, once);
  assert.equal(whole.finishReason, 'TOOL_CALL');
  const [call] = whole.message.toolCalls;
  assert.equal(call.function.name, 'look'); assert.equal(typeof JSON.parse(call.function.arguments).at, 'string');
  const events = await streamed(forced);
  const started = events.find((e) => e.type === 'tool-call-start');
  assert.equal(started.delta.message.toolCalls.function.name, 'look');
  const pieces = events.filter((e) => e.type === 'tool-call-delta').map((e) => e.delta.message.toolCalls.function.arguments);
  assert.equal(pieces.join(''), call.function.arguments);
  const history = [...ask.messages, { role: 'assistant', toolCalls: whole.message.toolCalls, toolPlan: 'I look.' },
    { role: 'tool', toolCallId: call.id, content: [{ type: 'document', document: { data: { found: 'this' } } }] }];
  const answered = await cohere.chat({ ...ask, tools, messages: history }, once);
  assert.ok(answered.usage.tokens.inputTokens > whole.usage.tokens.inputTokens);
  const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] };
  const made = await cohere.chat({ ...ask, maxTokens: 60, responseFormat: { type: 'json_object', jsonSchema: schema } }, once);
  assert.equal(typeof JSON.parse(made.message.content.at(-1).text).ok, 'boolean');
  // The model's template shows no documents.
  for (const documents of [['a'], [{ id: 'd', data: { text: 'a' } }]]) {
    await assert.rejects(cohere.chat({ ...ask, documents }, once), (e) => e.statusCode === 400 && /documents/.test(e.body?.message));
  }
});

T('SHOULD', 'text-embeddings-inference at the root embeds', { env: 'ENCODER_FOLDER', loopback: true }, async () => {
  const body = { inputs: ['a panda', 'a river'], normalize: true, truncate: true, model: MODEL };
  const named = await post('/embed', body); assert.equal(named.status, 200, named.text);
  const root = await post('/', body); assert.deepEqual(root.json, named.json);
});

T('SHOULD', 'token ids are embedded as their text', { cap: 'completion' }, async () => {
  const { json } = await post('/tokenize', { model: MODEL, content: 'a panda', add_special: true });
  const texts = await post('/v1/embeddings', { model: MODEL, input: ['a panda', 'a panda'] });
  const ids = await post('/v1/embeddings', { model: MODEL, input: [json.tokens, json.tokens] });
  assert.equal(ids.status, 200, ids.text);
  assert.deepEqual(ids.json.data, texts.json.data);
  const one = await post('/v1/embeddings', { model: MODEL, input: json.tokens });
  assert.deepEqual(one.json.data[0].embedding, texts.json.data[0].embedding);
});

T('SHOULD', 'llama.cpp: more than 20 alternatives of a token', { cap: 'completion' }, async () => {
  const { json } = await post('/completion', { model: MODEL, prompt: 'Once', n_predict: 1, n_probs: 150, temperature: 0 });
  assert.equal(json.completion_probabilities[0].top_logprobs.length, 150);
});
