// LangChain: a tool's round trip, streamed too.
import assert from 'node:assert';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

const shell = tool(async ({ command }) => `ran ${command}`,
                   { name: 'Bash', description: 'Runs a command.', schema: z.object({ command: z.string() }) });
const chat = new ChatOpenAI({ model: process.env.MODEL, apiKey: 'none', temperature: 0, maxTokens: 200,
                              configuration: { baseURL: `${process.env.BASE_URL}/v1` } }).bindTools([shell]);
const messages = [new HumanMessage('List the files.')];
const asked = await chat.invoke(messages);
assert.equal(asked.tool_calls.length, 1);
assert.equal(asked.tool_calls[0].name, 'Bash');
messages.push(asked, await shell.invoke(asked.tool_calls[0]));
assert.ok(messages.at(-1) instanceof ToolMessage);
let text = '';
for await (const chunk of await chat.stream(messages)) text += chunk.content;
assert.equal(text, 'Done');
