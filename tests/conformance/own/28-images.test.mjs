// Images through the clients that people use. VISION_FOLDER has small checkpoints of models that see; their
// goldens tell how long prompts are. QUIRE_BIN names the folder of the programs.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before } from 'node:test';
import { generateText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { HumanMessage } from '@langchain/core/messages';
import { ChatOllama } from '@langchain/ollama';
import OpenAI from 'openai';
import { Ollama } from 'ollama';
import { T, assert, BASE, MODEL, U, post } from '../lib/h.mjs';

const FOLDER = process.env.VISION_FOLDER ?? ''; const SEES = { env: 'VISION_FOLDER', loopback: true };
const FAMILIES = ['gemma3_vl', 'lfm2_vl', 'qwen3_vl']; const nameOf = (family) => `sees-${family.replaceAll('_', '-')}`;
const quire = (...args) => spawnSync(path.join(process.env.QUIRE_BIN ?? '', 'quire'), args, { env: { ...process.env, OLLAMA_HOST: U.host }, encoding: 'utf8' });
const work = fs.mkdtempSync(path.join(os.tmpdir(), 'quire-images-'));
// A checkpoint as it was published, and its conversion: two files of llama.cpp, one of them the tower.
const CONVERTED = ['gemma3_vl', 'qwen3_vl']; const MODELS = [...FAMILIES.map((family) => [family, nameOf(family)]), ...CONVERTED.map((family) => [family, `${nameOf(family)}-gguf`])];
const create = (name, ...from) => {
  fs.writeFileSync(path.join(work, 'Modelfile'), from.map((file) => `FROM ${file}\n`).join(''));
  const made = quire('create', name, '-f', path.join(work, 'Modelfile')); assert.equal(made.status, 0, made.stderr);
};
before(() => FOLDER && MODELS.forEach(([family, name]) => {
  const files = fs.readdirSync(path.join(FOLDER, family)); const of = (file) => path.join(FOLDER, family, file);
  if (name.endsWith('-gguf')) return create(name, ...files.filter((file) => file.endsWith('.gguf')).sort((a) => (a.startsWith('mmproj') ? 1 : -1)).map(of));
  const folder = path.join(work, family); fs.mkdirSync(folder);
  files.filter((file) => !file.endsWith('.gguf')).forEach((file) => fs.copyFileSync(of(file), path.join(folder, file)));
  return create(name, folder);
}));
after(() => { if (FOLDER) MODELS.forEach(([, name]) => quire('rm', name)); fs.rmSync(work, { recursive: true }); });

const QUESTION = 'What is in the picture?'; const TOKENS = 12;
const bytesOf = (picture) => fs.readFileSync(path.join(FOLDER, 'images', picture));
const base64 = (picture) => bytesOf(picture).toString('base64');
const typeOf = (picture) => (picture.endsWith('.jpg') ? 'image/jpeg' : 'image/png');
const url = (picture) => `data:${typeOf(picture)};base64,${base64(picture)}`;
// The golden's prompt of one picture before QUESTION: its tokens. llama.cpp's file of a tower does not say
// how large Qwen's pictures are: they have the published sizes.
const isCounted = (model) => model !== `${nameOf('qwen3_vl')}-gguf`;
const promptTokens = (family, picture) => {
  const golden = JSON.parse(fs.readFileSync(path.join(FOLDER, family, 'golden.json')));
  const one = golden.cases.find(({ images }) => images.length === 1 && golden.images[images[0]] === picture);
  return one.ids.length;
};
const ollama = new Ollama({ host: BASE });
const openai = new OpenAI({ baseURL: BASE + '/v1', apiKey: 'x', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: BASE, apiKey: 'x', maxRetries: 0 });
const ai = createOpenAICompatible({ name: 'q', baseURL: BASE + '/v1', apiKey: 'x', includeUsage: true });

// Each: {text, tokens} of a picture and QUESTION; `tokens` are those of the prompt.
const CLIENTS = {
  'ollama: chat': async (model, picture) => {
    const reply = await ollama.chat({ model, messages: [{ role: 'user', content: QUESTION, images: [bytesOf(picture)] }], options: { temperature: 0, num_predict: TOKENS } });
    return { text: reply.message.content, tokens: reply.prompt_eval_count };
  },
  'ollama: generate': async (model, picture) => {
    const reply = await ollama.generate({ model, prompt: QUESTION, images: [base64(picture)], options: { temperature: 0, num_predict: TOKENS } });
    return { text: reply.response, tokens: reply.prompt_eval_count };
  },
  'openai: chat completions': async (model, picture) => {
    const reply = await openai.chat.completions.create({ model, temperature: 0, max_tokens: TOKENS, messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: url(picture), detail: 'high' } }, { type: 'text', text: QUESTION }] }] });
    return { text: reply.choices[0].message.content, tokens: reply.usage.prompt_tokens };
  },
  'openai: responses': async (model, picture) => {
    const reply = await openai.responses.create({ model, temperature: 0, max_output_tokens: TOKENS, input: [{ role: 'user', content: [{ type: 'input_image', image_url: url(picture), detail: 'auto' }, { type: 'input_text', text: QUESTION }] }] });
    return { text: reply.output_text, tokens: reply.usage.input_tokens };
  },
  '@anthropic-ai/sdk: messages': async (model, picture) => {
    const messages = [{ role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: typeOf(picture), data: base64(picture) } }, { type: 'text', text: QUESTION }] }];
    const counted = await anthropic.messages.countTokens({ model, messages });
    const reply = await anthropic.messages.create({ model, temperature: 0, max_tokens: TOKENS, messages });
    return { text: reply.content.map((block) => block.text ?? '').join(''), tokens: counted.input_tokens };
  },
  'Vercel AI SDK: generateText': async (model, picture) => {
    const reply = await generateText({ model: ai(model), temperature: 0, maxOutputTokens: TOKENS, maxRetries: 0, messages: [{ role: 'user', content: [{ type: 'image', image: bytesOf(picture), mediaType: typeOf(picture) }, { type: 'text', text: QUESTION }] }] });
    return { text: reply.text, tokens: reply.usage.inputTokens };
  },
};
T('MUST', 'models that see say so', SEES, async () => {
  for (const [, model] of MODELS) {
    const shown = await ollama.show({ model }); assert.ok(shown.capabilities.includes('vision'), model);
    assert.equal(Boolean(shown.projector_info), model.endsWith('-gguf'), model);
    assert.equal(shown.details.families.includes('clip'), model.endsWith('-gguf'), model);
  }
});
// As the server answers by itself.
const direct = async (model, picture) => (await post('/api/chat', { model, stream: false, messages: [{ role: 'user', content: QUESTION, images: [base64(picture)] }], options: { temperature: 0, num_predict: TOKENS } })).json.message.content;

for (const [name, ask] of Object.entries(CLIENTS)) {
  T('MUST', `${name}: a model sees the picture that the client sends`, SEES, async () => {
    for (const [family, model] of MODELS) {
      const answers = [];
      for (const picture of ['a.png', 'b.png', 'c.jpg']) {
        const { text, tokens } = await ask(model, picture);
        if (isCounted(model)) assert.equal(tokens, promptTokens(family, picture), `${model} ${picture}`);
        assert.equal(text.trim(), (await direct(model, picture)).trim(), `${model} ${picture}`);
        answers.push(text);
      }
      assert.equal(new Set(answers).size, answers.length, `${model}: other pictures, other answers`);
    }
  });
}
T('MUST', 'openai: several pictures stay in their places', SEES, async () => {
  const model = nameOf('qwen3_vl');
  const ask = async (...parts) => (await openai.chat.completions.create({ model, temperature: 0, max_tokens: TOKENS, messages: [{ role: 'user', content: parts.map((part) => (part.startsWith('data:') ? { type: 'image_url', image_url: { url: part } } : { type: 'text', text: part })) }] })).choices[0].message.content;
  const [a, c] = [url('a.png'), url('c.jpg')];
  const orders = [await ask(a, c, QUESTION), await ask(c, a, QUESTION), await ask(a, QUESTION, c)];
  assert.equal(new Set(orders).size, 3);
  assert.equal(await ask(a, c, QUESTION), orders[0]);
});
// It makes a message of each part.
T('MUST', '@langchain/ollama: a model sees the picture that the client sends', SEES, async () => {
  const chat = new ChatOllama({ baseUrl: BASE, model: nameOf('gemma3_vl'), temperature: 0, numPredict: TOKENS }); const answers = [];
  for (const picture of ['a.png', 'b.png', 'a.png']) answers.push((await chat.invoke([new HumanMessage({ content: [{ type: 'image_url', image_url: url(picture) }, { type: 'text', text: QUESTION }] })])).content);
  assert.equal(answers[0], answers[2]); assert.notEqual(answers[0], answers[1]);
});
T('MUST', '@anthropic-ai/sdk: a screenshot in the result of a tool is seen', SEES, async () => {
  const model = nameOf('qwen3_vl');
  const ask = (picture) => anthropic.messages.create({ model, temperature: 0, max_tokens: TOKENS, messages: [
    { role: 'user', content: 'Look.' }, { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name: 'screenshot', input: {} }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: [{ type: 'text', text: 'taken' }, ...(picture ? [{ type: 'image', source: { type: 'base64', media_type: typeOf(picture), data: base64(picture) } }] : [])] }, { type: 'text', text: QUESTION }] }] });
  const [none, a, b] = [await ask(), await ask('a.png'), await ask('b.png')];
  const tokens = ({ usage }) => usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);
  assert.ok(tokens(a) > tokens(none) && tokens(b) > tokens(a)); assert.notDeepEqual(a.content, b.content);
});
T('MUST', 'ollama: a second turn finds the picture of the first in the cache', SEES, async () => {
  const model = nameOf('gemma3_vl'); const options = { temperature: 0, num_predict: TOKENS };
  const messages = [{ role: 'user', content: QUESTION, images: [base64('b.png')] }];
  const first = await ollama.chat({ model, messages, options });
  const second = await ollama.chat({ model, messages: [...messages, first.message, { role: 'user', content: 'And now?' }], options });
  assert.ok(second.prompt_eval_cached_count >= first.prompt_eval_count - 8, `${second.prompt_eval_cached_count} of ${first.prompt_eval_count}`);
});
T('MUST', 'an invalid picture is a typed error that names the field', SEES, async () => {
  const model = nameOf('lfm2_vl');
  const fails = async (image_url, status, text) => {
    const error = await openai.chat.completions.create({ model, max_tokens: 1, messages: [{ role: 'user', content: [{ type: 'image_url', image_url }] }] }).then(() => assert.fail('it was answered'), (one) => one);
    assert.equal(error.status, status); assert.match(error.message, text);
  };
  await fails({ url: 'https://example.com/a.png' }, 400, /image_url\.url: https URLs are not fetched/);
  await fails({ url: 'data:image/png;base64,!' }, 400, /image_url\.url" is not base64: byte 0/);
  await fails({ url: `data:image/png;base64,${Buffer.from('no picture').toString('base64')}` }, 400, /PNG|JPEG|WebP/);
  await fails({ url: `data:image/png;base64,${bytesOf('a.png').subarray(0, 60).toString('base64')}` }, 400, /image/);
  assert.equal(typeof await direct(model, 'a.png'), 'string', 'the model lives');
});
T('MUST', 'a model of text refuses a picture by name, and an earlier one is a line', { loopback: true }, async () => {
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,aGk=' } };
  const error = await openai.chat.completions.create({ model: MODEL, max_tokens: 1, messages: [{ role: 'user', content: [image] }] }).then(() => assert.fail('it was answered'), (one) => one);
  assert.equal(error.status, 400); assert.match(error.message, /does not support content of type "image_url"/);
  const later = await openai.chat.completions.create({ model: MODEL, max_tokens: 1, messages: [{ role: 'user', content: [image] }, { role: 'assistant', content: 'A cat.' }, { role: 'user', content: 'Thanks.' }] });
  assert.equal(later.choices.length, 1);
});
