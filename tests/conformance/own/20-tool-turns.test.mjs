// Conversations of several turns with tools, held by clients that people use: the model calls, the client
// runs the tool and gives its result back, the model answers, and one more turn follows on all of it.
import { T, assert, MODEL, BASE, U1 } from '../lib/h.mjs';
import { generateText, streamText, jsonSchema, stepCountIs, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOllama } from '@langchain/ollama'; import { ChatOpenAI } from '@langchain/openai';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { Ollama } from 'ollama'; import OpenAI from 'openai';
const ASK = 'What is the weather in Paris?', MORE = 'Thank you!', ANSWER = /21 degrees and sunny/;
const parameters = { type: 'object', properties: { city: { type: 'string', description: 'Name of the city' } }, required: ['city'] };
const described = { name: 'get_weather', description: 'Get the weather in a city', parameters };
const RESULT = '{"temperature": 21, "condition": "sunny"}';  // as the model was shown results in training
const provider = createOpenAICompatible({ name: 'q', baseURL: BASE + '/v1', apiKey: 'x', includeUsage: true });

T('MUST', 'Vercel AI SDK: generateText runs a tool and goes on', { cap: 'tools' }, async () => {
  const seen = [];
  const tools = { get_weather: tool({ description: described.description, inputSchema: jsonSchema(parameters), execute: async (input) => { seen.push(input); return RESULT; } }) };
  const first = await generateText({ model: provider(MODEL), messages: U1(ASK), tools, stopWhen: stepCountIs(3), temperature: 0, maxRetries: 0 });
  assert.equal(seen.length, 1); assert.equal(Object.values(seen[0])[0], 'Paris'); assert.match(first.text, ANSWER); assert.equal(first.steps.length, 2); assert.equal(first.steps[0].finishReason, 'tool-calls');
  const second = await generateText({ model: provider(MODEL), messages: [...U1(ASK), ...first.response.messages, ...U1(MORE)], tools, temperature: 0, maxRetries: 0 });
  assert.ok(second.text.length || second.toolCalls.length);
});
T('MUST', 'Vercel AI SDK: streamText streams the same call and answer', { cap: 'tools' }, async () => {
  const seen = [];
  const tools = { get_weather: tool({ description: described.description, inputSchema: jsonSchema(parameters), execute: async (input) => { seen.push(input); return RESULT; } }) };
  const stream = streamText({ model: provider(MODEL), messages: U1(ASK), tools, stopWhen: stepCountIs(3), temperature: 0, maxRetries: 0 });
  let text = ''; for await (const piece of stream.textStream) text += piece;
  assert.equal(seen.length, 1); assert.match(text, ANSWER); assert.equal((await stream.steps).length, 2);
});
async function langchain(model) {
  const bound = model.bindTools([{ type: 'function', function: described }]); const messages = [new HumanMessage(ASK)];
  const call = await bound.invoke(messages); assert.equal(call.tool_calls.length, 1); assert.equal(call.tool_calls[0].name, 'get_weather'); assert.equal(Object.values(call.tool_calls[0].args)[0], 'Paris');
  let streamed; for await (const chunk of await bound.stream(messages)) streamed = streamed ? streamed.concat(chunk) : chunk;
  assert.deepEqual(streamed.tool_calls.map((c) => [c.name, c.args]), call.tool_calls.map((c) => [c.name, c.args]));
  messages.push(call, new ToolMessage({ content: RESULT, tool_call_id: call.tool_calls[0].id ?? 'c', name: 'get_weather' }));
  const answer = await bound.invoke(messages); assert.match(String(answer.content), ANSWER); assert.ok(!answer.tool_calls?.length);
  messages.push(answer, new HumanMessage(MORE)); const last = await bound.invoke(messages); assert.ok(String(last.content).length || last.tool_calls.length);
}
T('MUST', '@langchain/ollama: a conversation with a tool', { cap: 'tools' }, () => langchain(new ChatOllama({ baseUrl: BASE, model: MODEL, temperature: 0 })));
T('MUST', '@langchain/openai: a conversation with a tool', { cap: 'tools' }, () => langchain(new ChatOpenAI({ model: MODEL, apiKey: 'x', temperature: 0, configuration: { baseURL: BASE + '/v1' }, maxRetries: 0 })));
T('MUST', 'ollama: a conversation with a tool', { cap: 'tools' }, async () => {
  const client = new Ollama({ host: BASE }); const tools = [{ type: 'function', function: described }]; const messages = U1(ASK);
  const call = (await client.chat({ model: MODEL, messages, tools, options: { temperature: 0 } })).message; assert.equal(call.tool_calls.length, 1); assert.equal(typeof call.tool_calls[0].function.arguments, 'object');
  messages.push(call, { role: 'tool', tool_name: 'get_weather', content: RESULT });
  let text = ''; for await (const part of await client.chat({ model: MODEL, messages, tools, stream: true, options: { temperature: 0 } })) text += part.message.content;
  assert.match(text, ANSWER);
});
T('MUST', 'openai: a streamed conversation with a tool', { cap: 'tools' }, async () => {
  const client = new OpenAI({ baseURL: BASE + '/v1', apiKey: 'x', maxRetries: 0 }); const tools = [{ type: 'function', function: described }];
  const call = await client.chat.completions.stream({ model: MODEL, messages: U1(ASK), tools, temperature: 0 }).finalMessage(); assert.equal(call.tool_calls.length, 1);
  const answer = await client.chat.completions.create({ model: MODEL, temperature: 0, tools, messages: [...U1(ASK), call, { role: 'tool', tool_call_id: call.tool_calls[0].id, content: RESULT }] });
  assert.match(answer.choices[0].message.content, ANSWER); assert.equal(answer.choices[0].finish_reason, 'stop');
});
