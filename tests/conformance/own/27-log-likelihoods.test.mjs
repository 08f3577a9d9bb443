// Log-probabilities of prompts, and what vLLM's server says of a tokenizer: what lm-evaluation-harness asks
// for.
import OpenAI from 'openai';
import { T, assert, BASE, MODEL, U1, get, post, ok, oaiErr, sse } from '../lib/h.mjs';
const client = new OpenAI({ baseURL: BASE + '/v1', apiKey: 'x', maxRetries: 0 });
const TEXT = 'Once upon a time, a fox met a bear.';
const tokenize = async (prompt) => ok(await post('/tokenize', { model: MODEL, prompt }));

T('MUST', 'completions: echo with logprobs of text, ids, and lists of both', {}, async () => {
  const { tokens } = await tokenize(TEXT);
  for (const [prompt, count] of [[TEXT, 1], [tokens, 1], [[TEXT, 'The bear.'], 2], [[tokens, tokens.slice(0, 5)], 2]]) {
    const reply = await client.completions.create({ model: MODEL, prompt, echo: true, logprobs: 1, max_tokens: 1, temperature: 0, seed: 1 });
    assert.equal(reply.choices.length, count); assert.equal(reply.usage.completion_tokens, count);
    const lists = reply.choices[0].logprobs; for (const list of Object.values(lists)) assert.equal(list.length, tokens.length + 1);
    assert.equal(lists.token_logprobs[0], null); assert.equal(lists.top_logprobs[0], null);
    lists.token_logprobs.slice(1).forEach((value, i) => { assert.ok(value <= 0); assert.ok(value <= Math.max(...Object.values(lists.top_logprobs[i + 1]))); });
    assert.ok(lists.text_offset.every((offset, i) => i === 0 || offset >= lists.text_offset[i - 1]));
  }
});
T('MUST', 'completions: max_tokens 0 scores and samples nothing', {}, async () => {
  const reply = ok(await post('/v1/completions', { model: MODEL, prompt: TEXT, echo: true, logprobs: 0, max_tokens: 0 }));
  assert.equal(reply.choices[0].text, TEXT); assert.equal(reply.choices[0].finish_reason, 'length'); assert.equal(reply.usage.completion_tokens, 0);
  assert.equal(reply.choices[0].logprobs.tokens.length, reply.usage.prompt_tokens);
});
T('MUST', 'completions: a stream with echo is what the body is', {}, async () => {
  const body = { model: MODEL, prompt: (await tokenize(TEXT.repeat(20))).tokens, echo: true, logprobs: 1, max_tokens: 4, temperature: 0 };
  const whole = ok(await post('/v1/completions', body)).choices[0]; const stream = await sse('/v1/completions', { ...body, stream: true });
  const pieces = stream.chunks.map((chunk) => chunk.choices[0]); assert.equal(pieces.map((piece) => piece.text).join(''), whole.text);
  for (const name of Object.keys(whole.logprobs)) assert.deepEqual(pieces.flatMap((piece) => piece.logprobs?.[name] ?? []), whole.logprobs[name]);
});
T('MUST', 'prompt_logprobs of completions and chats', {}, async () => {
  const { tokens } = await tokenize(TEXT);
  const list = ok(await post('/v1/completions', { model: MODEL, prompt: tokens, prompt_logprobs: 2, max_tokens: 1 })).choices[0].prompt_logprobs;
  assert.equal(list.length, tokens.length); assert.equal(list[0], null);
  for (let i = 1; i < tokens.length; i++) { const own = list[i][tokens[i]]; assert.ok(own.logprob <= 0 && own.rank >= 1); assert.equal(typeof own.decoded_token, 'string'); assert.ok([2, 3].includes(Object.keys(list[i]).length)); }
  const chat = ok(await post('/v1/chat/completions', { model: MODEL, messages: U1('Hi'), prompt_logprobs: 0, max_tokens: 1 }));
  assert.equal(chat.prompt_logprobs.length, chat.usage.prompt_tokens); assert.equal(chat.prompt_logprobs[0], null);
  oaiErr(await post('/v1/completions', { model: MODEL, prompt: 'x', prompt_logprobs: 21 }), 400);
  oaiErr(await post('/v1/chat/completions', { model: MODEL, messages: U1('Hi'), prompt_logprobs: 1, stream: true }), 400);
});
T('MUST', '/tokenize, /detokenize and /tokenizer_info as vLLM has them', {}, async () => {
  const text = await tokenize(TEXT); assert.equal(text.count, text.tokens.length); assert.ok(text.max_model_len > 0);
  const bare = ok(await post('/tokenize', { model: MODEL, prompt: TEXT, add_special_tokens: false })).tokens;
  assert.equal(ok(await post('/detokenize', { model: MODEL, tokens: bare })).prompt, TEXT);
  const chat = ok(await post('/tokenize', { model: MODEL, messages: U1('Hi') }));
  assert.equal(chat.count, ok(await post('/v1/chat/completions', { model: MODEL, messages: U1('Hi'), max_tokens: 1 })).usage.prompt_tokens);
  const info = ok(await get('/tokenizer_info?model=' + encodeURIComponent(MODEL))); assert.equal(typeof info.tokenizer_class, 'string'); assert.equal(typeof info.eos_token, 'string');
});
