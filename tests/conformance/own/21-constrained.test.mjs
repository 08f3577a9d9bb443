// Constrained answers and forced tool calls, requested by common clients.
import { T, assert, MODEL, BASE, U1 } from '../lib/h.mjs';
import { generateObject, generateText, streamObject, jsonSchema, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import OpenAI from 'openai'; import Anthropic from '@anthropic-ai/sdk';
const schema = { type: 'object', properties: { mood: { type: 'string', enum: ['happy', 'sad'] }, age: { type: 'integer', minimum: 0, maximum: 120 } }, required: ['mood', 'age'], additionalProperties: false };
const holds = (o) => { assert.deepEqual(Object.keys(o).sort(), ['age', 'mood']); assert.ok(['happy', 'sad'].includes(o.mood)); assert.ok(Number.isInteger(o.age) && o.age >= 0 && o.age <= 120); };
const provider = createOpenAICompatible({ name: 'q', baseURL: BASE + '/v1', apiKey: 'x', includeUsage: true, supportsStructuredOutputs: true });
const client = new OpenAI({ baseURL: BASE + '/v1', apiKey: 'x', maxRetries: 0 });
const asked = { model: provider(MODEL), messages: U1('How are you?'), maxRetries: 0, temperature: 1, seed: 5 };

T('MUST', 'Vercel AI SDK: generateObject and streamObject give what the schema says', {}, async () => {
  holds((await generateObject({ ...asked, schema: jsonSchema(schema) })).object);
  const stream = streamObject({ ...asked, schema: jsonSchema(schema) });
  let last; for await (const partial of stream.partialObjectStream) last = partial;
  holds(await stream.object); holds(last);
});
T('MUST', 'Vercel AI SDK: a choice of tool forces its call', { cap: 'tools' }, async () => {
  const tools = { note: tool({ description: 'Note a mood', inputSchema: jsonSchema(schema) }), other: tool({ description: 'x', inputSchema: jsonSchema({ type: 'object', properties: {} }) }) };
  for (const toolChoice of ['required', { type: 'tool', toolName: 'note' }]) {
    const answer = await generateText({ ...asked, tools, toolChoice });
    assert.equal(answer.finishReason, 'tool-calls'); assert.equal(answer.toolCalls.length, 1); assert.equal(answer.text, '');
    if (answer.toolCalls[0].toolName === 'note') holds(answer.toolCalls[0].input); else assert.equal(toolChoice, 'required');
  }
});
T('MUST', 'openai: chat.completions.parse and responses.parse give what the schema says', {}, async () => {
  const chat = await client.chat.completions.parse({ model: MODEL, messages: U1('How are you?'), seed: 6, response_format: { type: 'json_schema', json_schema: { name: 'mood', strict: true, schema } } });
  holds(JSON.parse(chat.choices[0].message.content));
  const response = await client.responses.parse({ model: MODEL, input: 'How are you?', text: { format: { type: 'json_schema', name: 'mood', strict: true, schema } } });
  holds(JSON.parse(response.output_text)); assert.equal(response.status, 'completed');
});
T('MUST', 'openai: a streamed response with a forced call, and its result', { cap: 'tools' }, async () => {
  const tools = [{ type: 'function', name: 'note', description: 'Note a mood', parameters: schema, strict: true }];
  const stream = client.responses.stream({ model: MODEL, input: U1('How are you?'), tools, tool_choice: 'required' });
  let text = ''; stream.on('response.function_call_arguments.delta', (event) => { text += event.delta; });
  const response = await stream.finalResponse(); const [call] = response.output;
  assert.equal(response.output.length, 1); assert.equal(call.type, 'function_call'); assert.equal(call.name, 'note'); assert.equal(call.arguments, text); holds(JSON.parse(text));
  const next = await client.responses.create({ model: MODEL, tools, tool_choice: 'none', input: [...U1('How are you?'), call, { type: 'function_call_output', call_id: call.call_id, output: 'noted' }] });
  assert.equal(next.output[0].type, 'message');
});
T('MUST', 'Anthropic: a streamed forced call', { cap: 'tools' }, async () => {
  const anthropic = new Anthropic({ baseURL: BASE, apiKey: 'x', maxRetries: 0 });
  const message = await anthropic.messages.stream({ model: MODEL, max_tokens: 200, messages: U1('How are you?'), tools: [{ name: 'note', input_schema: schema }], tool_choice: { type: 'tool', name: 'note' } }).finalMessage();
  assert.equal(message.stop_reason, 'tool_use'); assert.equal(message.content.length, 1); assert.equal(message.content[0].name, 'note'); holds(message.content[0].input);
});
for (const method of ['jsonSchema', 'functionCalling']) {
  T('MUST', `@langchain/openai: withStructuredOutput by ${method}`, { cap: 'tools' }, async () => {
    const model = new ChatOpenAI({ model: MODEL, apiKey: 'x', configuration: { baseURL: BASE + '/v1' }, maxRetries: 0 });
    holds(await model.withStructuredOutput(schema, { name: 'mood', method }).invoke('How are you?'));
  });
}
