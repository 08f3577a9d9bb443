// Vercel AI SDK: a tool's round trip in one piece and streamed, and an object of a schema.
import assert from 'node:assert';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const provider = createOpenAICompatible({ name: 'quire', baseURL: `${process.env.BASE_URL}/v1`, includeUsage: true });
const model = provider.chatModel(process.env.MODEL);
for (const generate of [generateText, streamText]) {
  let calls = 0;
  const tools = { Bash: tool({ description: 'Runs a command.', inputSchema: z.object({ command: z.string() }),
                               execute: async () => { ++calls; return 'a file'; } }) };
  const result = await generate({ model, tools, prompt: 'List the files.', temperature: 0, maxOutputTokens: 200,
                                  stopWhen: stepCountIs(4) });
  assert.equal(await result.text, 'Done');
  assert.equal(calls, 1);
}
