// What agents and clients of other servers send: fields, tools of every type, structured output as
// JSON.stringify writes it, progress, timings.
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { T, assert, BASE, MODEL, U1, call, post, ok, oai, cmpl, oaiErr, anthErr, anth, sse } from '../lib/h.mjs';
const openai = new OpenAI({ baseURL: `${BASE}/v1`, apiKey: 'x', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: BASE, apiKey: 'x', maxRetries: 0 });
const PARAMETERS = { type: 'object', properties: { command: { enum: ['ls', 'pwd'] } }, required: ['command'], additionalProperties: false };

T('MUST', 'Anthropic: system messages at any place, request ids, client tools', {}, async () => {
  const messages = [{ role: 'system', content: 'Be brief.' }, ...U1('Hi'), { role: 'assistant', content: 'Hi.' }, { role: 'system', content: 'Be kind.' }, ...U1('Bye')];
  const reply = await anth({ messages }); ok(reply); assert.ok(reply.headers.get('request-id')); assert.equal(reply.headers.get('request-id'), reply.headers.get('x-request-id'));
  const missing = await anth({ model: 'nope' }); anthErr(missing, 404, 'not_found_error'); assert.ok(missing.json.request_id);
  const tools = [{ type: 'bash_20250124', name: 'bash' }, { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool' }, { type: 'memory_20250818', name: 'memory' }, { type: 'web_search_20250305', name: 'web_search' }];
  await anthropic.messages.create({ model: MODEL, max_tokens: 8, messages: U1('Hi'), tools });
  anthErr(await anth({ tools, tool_choice: { type: 'tool', name: 'web_search' } }), 400, 'invalid_request_error');
});
T('MUST', 'Anthropic: a prompt that does not fit says so as the client looks for it', {}, async () => {
  const long = await anth({ messages: U1('fox '.repeat(40000)), max_tokens: 1 });
  anthErr(long, 400, 'invalid_request_error'); assert.match(long.json.error.message, /prompt is too long: \d+ tokens > \d+ maximum/);
});
T('MUST', 'responses: tools of every type, items of tools that the server does not run', {}, async () => {
  const tools = [{ type: 'web_search' }, { type: 'local_shell' }, { type: 'custom', name: 'patch', description: 'd' }, { type: 'namespace', name: 'x', tools: [{ type: 'function', name: 'run', parameters: PARAMETERS, strict: false }] }];
  const input = [...U1('Hi'), { type: 'web_search_call', id: 'ws_1', status: 'completed' }, { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'hm' }] }, { role: 'assistant', content: 'Hi.' }, ...U1('Bye')];
  assert.equal((await openai.responses.create({ model: MODEL, input, tools, max_output_tokens: 8 })).object, 'response');
  oaiErr(await post('/v1/responses', { model: MODEL, input, tools, tool_choice: { type: 'web_search' } }), 400);
  const forced = await openai.responses.create({ model: MODEL, input, tools, tool_choice: { type: 'custom', name: 'patch' }, max_output_tokens: 400, temperature: 0 });
  assert.equal(forced.output.at(-1).type, 'custom_tool_call');
});
T('MUST', 'responses have timings, and take the formats of chats', {}, async () => {
  const reply = await openai.responses.create({ model: MODEL, input: 'Hi', max_output_tokens: 8, response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { enum: ['a', 'b'] } } } });
  assert.ok(['"a"', '"b"'].includes(reply.output_text.trim())); assert.equal(reply.timings.predicted_n, reply.usage.output_tokens);
  oaiErr(await post('/v1/responses', { model: MODEL, input: 'Hi', grammar: 'root ::= "a"', text: { format: { type: 'json_object' } } }), 400);
});
T('MUST', 'allowed_tools: only those are called', {}, async () => {
  const tools = ['read', 'run'].map((name) => ({ type: 'function', function: { name, parameters: PARAMETERS } }));
  const allowed = { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'run' } }] } };
  const choice = ok(await oai({ tools, tool_choice: allowed, max_tokens: 100 })).choices[0];
  assert.equal(choice.message.tool_calls[0].function.name, 'run'); assert.ok(['ls', 'pwd'].includes(JSON.parse(choice.message.tool_calls[0].function.arguments).command));
});
T('MUST', 'structured output holds the values of its schema, with white space or without', {}, async () => {
  const number = { type: 'number' };
  const schema = { type: 'object', properties: { a: number, b: { type: 'number', minimum: -5, maximum: 5 }, c: { type: 'array', items: number, minItems: 2, maxItems: 2 }, d: { enum: [1.0, -0.0, 2.50] }, e: { type: 'string', maxLength: 5 } }, required: ['a', 'b', 'c', 'd', 'e'], additionalProperties: false };
  let whole = 0;
  for (let seed = 1; seed <= 12; seed++) {
    const compact = seed % 2 === 0;
    const reply = ok(await oai({ response_format: { type: 'json_schema', json_schema: { name: 'n', schema } }, temperature: 1.5, seed, max_tokens: 400, structured_output_whitespace: !compact }));
    if (reply.choices[0].finish_reason !== 'stop') continue;
    const text = reply.choices[0].message.content, value = JSON.parse(text);
    assert.deepEqual(Object.keys(value), ['a', 'b', 'c', 'd', 'e']);
    assert.ok(value.b >= -5 && value.b <= 5 && value.c.length === 2 && [1, 0, 2.5].includes(value.d + 0) && [...value.e].length <= 5, text);
    if (compact) assert.doesNotMatch(text.replace(/"(?:[^"\\]|\\.)*"/g, '""'), /\s/);
    whole++;
  }
  assert.ok(whole > 0);
  const spaced = ok(await oai({ response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { const: 'x' } } }, max_tokens: 20 }));
  assert.equal(spaced.choices[0].message.content.trim(), '"x"');
});
T('MUST', 'no field that changes an answer is ignored', {}, async () => {
  const plain = { temperature: 1, seed: 3, max_tokens: 24 };
  const text = ok(await cmpl(plain)).choices[0].text;
  for (const [name, value] of Object.entries({ typical_p: 0.2, repetition_penalty: 1.9, mirostat: 2, top_n_sigma: 0.1, min_p: 0.9, stop_token_ids: [...Array(500).keys()], logit_bias: { 300: 100 } })) {
    const other = ok(await cmpl({ ...plain, [name]: value })).choices[0].text; assert.notEqual(other, text, name);
  }
  for (const [name, value] of Object.entries({ guided_grammar: 'x', best_of: 3, bad_words: ['x'], ban_eos_token: true, typical: 0.5, stop_regex: 'x', return_token_ids: true })) {
    for (const reply of [await oai({ [name]: value }), await cmpl({ [name]: value }), await post('/v1/responses', { model: MODEL, input: 'Hi', [name]: value })]) {
      oaiErr(reply, 400); assert.equal(reply.json.error.param, name);
    }
  }
});
T('MUST', 'chat_template_kwargs, enable_thinking and how the prompt ends', {}, async () => {
  ok(await oai({ chat_template_kwargs: { enable_thinking: false } })); ok(await oai({ enable_thinking: false })); ok(await oai({ thinking: { type: 'disabled' } })); ok(await oai({ think: false }));
  oaiErr(await oai({ enable_thinking: true, chat_template_kwargs: { enable_thinking: false } }), 400);
  const messages = [...U1('Hi'), { role: 'assistant', content: 'Once' }];
  const tokens = async (fields) => ok(await oai({ messages, max_tokens: 1, ...fields })).usage.prompt_tokens;
  assert.ok(await tokens({ continue_final_message: true, add_generation_prompt: false }) < await tokens({ add_generation_prompt: true }));
  oaiErr(await oai({ continue_final_message: true }), 400);
});
T('MUST', 'return_progress: a prefill is reported before the first token', {}, async () => {
  const { chunks } = await sse('/v1/chat/completions', { model: MODEL, messages: U1(`fox ${'and hound '.repeat(300)}`), cache_salt: `p${process.pid}`, stream: true, return_progress: true, max_tokens: 2 });
  const reports = chunks.map((chunk) => chunk.prompt_progress).filter(Boolean);
  assert.ok(reports.length > 1); assert.equal(reports[0].cache, 0); assert.ok(reports.every((report) => report.processed < report.total && report.time_ms >= 0));
});
T('MUST', 'OpenAI: timings_per_token', {}, async () => {
  let last; let counted = 0;
  for await (const chunk of await openai.chat.completions.create({ model: MODEL, messages: U1('Hi'), max_tokens: 8, stream: true, timings_per_token: true })) { last = chunk; counted += chunk.timings ? 1 : 0; }
  assert.ok(counted > 1 || last.timings.predicted_n <= 1); assert.ok(last.timings.predicted_ms > 0);
  assert.equal((await openai.chat.completions.create({ model: MODEL, messages: U1('Hi'), max_tokens: 8 })).timings, undefined);
});
T('MUST', 'auto: a call that the model begins is one of an offered tool, with arguments of its schema', { cap: 'tools' }, async () => {
  const enums = ['Oslo', 'Bergen']; const schema = { type: 'object', properties: { city: { enum: enums } }, required: ['city'], additionalProperties: false };
  for (const name of ['get_weather', 'never_seen']) {
    const tools = [{ type: 'function', function: { name, description: 'Get the weather in a city', parameters: schema } }];
    const body = { messages: U1('What is the weather in Paris?'), tools, temperature: 0, max_tokens: 120 };
    const { message } = ok(await oai(body)).choices[0];
    if (name === 'get_weather') assert.equal(message.tool_calls?.length, 1, JSON.stringify(message));
    for (const each of message.tool_calls ?? []) { assert.equal(each.function.name, name); assert.ok(enums.includes(JSON.parse(each.function.arguments).city)); }
    const streamed = await openai.chat.completions.stream({ model: MODEL, ...body }).finalMessage();
    assert.deepEqual((streamed.tool_calls ?? []).map((each) => [each.function.name, each.function.arguments]), (message.tool_calls ?? []).map((each) => [each.function.name, each.function.arguments]));
  }
});
T('MUST', 'thinking: counted, and ended by its budget', {}, async () => {
  const messages = [{ role: 'system', content: 'Think step by step before you answer.' }, ...U1('What is 38 + 47?')];
  const free = ok(await oai({ messages, temperature: 0, max_tokens: 200 })); const thought = free.usage.completion_tokens_details.reasoning_tokens;
  assert.ok(thought > 8, JSON.stringify(free)); assert.ok(free.choices[0].message.reasoning_content.length > 0); assert.match(free.choices[0].message.content, /85/);
  const cut = ok(await oai({ messages, temperature: 0, max_tokens: 200, max_thinking_tokens: 8 }));
  assert.ok(cut.usage.completion_tokens_details.reasoning_tokens < thought); assert.ok(cut.choices[0].message.content.length > 0);
  const blocks = ok(await anth({ system: messages[0].content, messages: [messages[1]], max_tokens: 2000, temperature: 0, thinking: { type: 'enabled', budget_tokens: 1024 } })).content;
  assert.deepEqual(blocks.map((block) => block.type), ['thinking', 'text']);
});
T('MUST', 'samplers: DRY and XTC are drawn, not ignored', {}, async () => {
  for (const [prompt, fields] of [['fox fox fox fox fox fox', { dry_multiplier: 5, dry_base: 4, dry_allowed_length: 1 }], ['Once upon a', { xtc_probability: 1, xtc_threshold: 0.01 }]]) {
    const drawn = async (more) => ok(await post('/completion', { prompt, temperature: 1, seed: 5, n_predict: 40, ...more })).content;
    const text = await drawn(fields); assert.notEqual(text, await drawn({}), prompt); assert.equal(text, await drawn(fields), prompt);
  }
});
