// The Model Context Protocol's SDK with four of its servers: each tool list goes to the model, whose call
// goes to the server and its result back.
import assert from 'node:assert';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const servers = [
  { name: 'filesystem', args: [process.cwd()], tool: 'list_allowed_directories' },
  { name: 'memory', args: [], tool: 'read_graph' },
  { name: 'everything', args: [], tool: 'echo' },
  // Its schema takes any text where the server wants true or false.
  { name: 'sequential-thinking', args: [], tool: 'sequentialthinking', refuses: true },
];

async function ask(body) {
  const reply = await fetch(`${process.env.BASE_URL}/v1/chat/completions`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ model: process.env.MODEL, temperature: 0, max_tokens: 400, ...body }) });
  const json = await reply.json();
  assert.equal(reply.status, 200, JSON.stringify(json));
  return json.choices[0].message;
}

for (const { name, args, tool, refuses } of servers) {
  const client = new Client({ name: 'quire-test', version: '1' });
  await client.connect(new StdioClientTransport({
    command: `node_modules/.bin/mcp-server-${name}`, args, stderr: 'ignore' }));
  const listed = (await client.listTools()).tools;
  const tools = listed.map((one) => ({ type: 'function', function: {
    name: one.name, description: one.description, parameters: one.inputSchema } }));
  const messages = [{ role: 'user', content: 'Go on.' }];
  // One of them by the model's own choice, with arguments of its schema.
  const free = await ask({ messages, tools });
  assert.ok(listed.some((one) => one.name === free.tool_calls[0].function.name));
  const call = (await ask({ messages, tools, tool_choice: { type: 'function', function: { name: tool } } }));
  const { name: called, arguments: text } = call.tool_calls[0].function;
  assert.equal(called, tool);
  const result = await client.callTool({ name: called, arguments: JSON.parse(text) });
  assert.ok(refuses || !result.isError, JSON.stringify(result));
  messages.push(call, { role: 'tool', tool_call_id: call.tool_calls[0].id, content: JSON.stringify(result.content) });
  assert.equal((await ask({ messages, tools })).content, 'Done');
  await client.close();
}
