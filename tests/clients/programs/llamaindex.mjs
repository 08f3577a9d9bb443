// LlamaIndex: an agent with a tool.
import assert from 'node:assert';
import { OpenAI } from '@llamaindex/openai';
import { agent } from '@llamaindex/workflow';
import { tool } from 'llamaindex';
import { z } from 'zod';

let calls = 0;
const shell = tool({ name: 'Bash', description: 'Runs a command.', parameters: z.object({ command: z.string() }),
                     execute: ({ command }) => { ++calls; return `ran ${command}`; } });
const llm = new OpenAI({ model: process.env.MODEL, apiKey: 'none', baseURL: `${process.env.BASE_URL}/v1`,
                         temperature: 0, maxTokens: 200, supportToolCall: true });
const result = await agent({ llm, tools: [shell], verbose: false }).run('List the files.');
assert.equal(String(result.data.result), 'Done');
assert.equal(calls, 1);
