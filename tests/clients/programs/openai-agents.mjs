// OpenAI Agents SDK: a tool's round trip over /v1/responses and over /v1/chat/completions.
import assert from 'node:assert';
import { Agent, OpenAIProvider, Runner, tool } from '@openai/agents';
import { z } from 'zod';

for (const useResponses of [true, false]) {
  let calls = 0;
  const shell = tool({
    name: 'Bash', description: 'Runs a command.', parameters: z.object({ command: z.string() }),
    execute: async ({ command }) => { ++calls; return `ran ${command}`; },
  });
  const modelProvider = new OpenAIProvider({ baseURL: `${process.env.BASE_URL}/v1`, apiKey: 'none', useResponses });
  const runner = new Runner({ modelProvider, tracingDisabled: true });
  const agent = new Agent({ name: 'a', instructions: 'Be brief.', model: process.env.MODEL, tools: [shell],
                            modelSettings: { maxTokens: 200, temperature: 0 } });
  const result = await runner.run(agent, 'List the files.', { maxTurns: 4 });
  assert.equal(result.finalOutput, 'Done');
  assert.equal(calls, 1);
}
