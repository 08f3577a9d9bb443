// What a user meets first: the terminal, settings copied from Ollama, keys with limits, the agents'
// configurations. These cases run the installed programs, whose folder QUIRE_BIN names.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { T, assert, BASE, MODEL, U, U1, call, ok } from '../lib/h.mjs';
const BIN = process.env.QUIRE_BIN; const NEEDS = { env: 'QUIRE_BIN', loopback: true };
// Where no terminal can be made (a chroot without /dev/pts), its cases are skipped.
const TERMINAL = spawnSync('script', ['-qefc', 'true', '/dev/null']).status === 0 ? NEEDS : { env: 'A_SYSTEM_WITH_TERMINALS' };
const HOME = fs.mkdtempSync(path.join(os.tmpdir(), 'quire-first-')); process.on('exit', () => fs.rmSync(HOME, { recursive: true, force: true }));
const ENV = { ...process.env, HOME, OLLAMA_HOST: U.host, TERM: 'vt100', LC_ALL: 'C.UTF-8' };
async function cli(args, { input = '', env = {}, stdout = 'pipe' } = {}) {
  const child = spawn(path.join(BIN, 'quire'), args, { env: { ...ENV, ...env }, stdio: ['pipe', stdout, 'pipe'] });
  let out = ''; let err = ''; child.stdout?.on('data', (piece) => { out += piece; }); child.stderr.on('data', (piece) => { err += piece; });
  child.stdin.on('error', () => {}); child.stdin.end(input);
  const [code] = await once(child, 'close'); return { code, out, err };
}
// quire in a terminal of 80 columns: type() sends keys, shown() waits for a text and gives what came before
// it.
async function terminal(args, use, env = {}) {
  const child = spawn('script', ['-qefc', `stty cols 80 rows 24; exec ${BIN}/quire ${args}`, '/dev/null'], { env: { ...ENV, ...env }, stdio: ['pipe', 'pipe', 'inherit'] });
  let seen = ''; let wake = () => {}; let ended = false;
  child.stdout.setEncoding('utf8'); child.stdout.on('data', (piece) => { seen += piece; wake(); });
  const closed = once(child, 'close').then(([code]) => { ended = true; wake(); return code; });
  const shown = async (text) => {
    while (!seen.includes(text)) { assert.ok(!ended, `${text} was not shown: ${JSON.stringify(seen)}`); await new Promise((resolve) => { wake = resolve; }); }
    const before = seen.slice(0, seen.indexOf(text)); seen = seen.slice(before.length + text.length); return before;
  };
  try { await use({ type: (keys) => child.stdin.write(keys), shown }); return await closed; } finally { child.kill('SIGKILL'); }
}
// A daemon of its own: its address, a wait for what it logs, and use() while it runs.
async function daemon(env, use) {
  const child = spawn(path.join(BIN, 'quired'), [], { env: { ...ENV, OLLAMA_HOST: '127.0.0.1:0', OLLAMA_MODELS: path.join(HOME, 'models'), ...env }, stdio: ['ignore', 'ignore', 'pipe'] });
  let log = ''; let wake = () => {}; let ended = false;
  child.stderr.setEncoding('utf8'); child.stderr.on('data', (piece) => { log += piece; wake(); });
  const closed = once(child, 'close').then(() => { ended = true; wake(); });
  const logged = async (pattern) => {
    while (!pattern.test(log)) { assert.ok(!ended, `no ${pattern} in ${log}`); await new Promise((resolve) => { wake = resolve; }); }
    return pattern.exec(log);
  };
  try { return await use((await logged(/ listening address=([\d.]+:\d+)/))[1], logged); } finally { child.kill('SIGTERM'); await closed; }
}
// A server that answers a chat with "ok" once `held` is resolved; what it was sent.
async function recorder(held, use) {
  const requests = [];
  const server = http.createServer((request, response) => {
    let body = ''; request.on('data', (piece) => { body += piece; });
    request.on('end', async () => {
      requests.push({ path: request.url, key: request.headers.authorization, body: body && JSON.parse(body) });
      if (request.url === '/api/chat') await held;
      response.end(request.url === '/api/chat' ? '{"message":{"role":"assistant","content":"ok"},"done":true}\n' : '{"models":[],"capabilities":["completion"],"details":{}}\n');
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  try { await use(`127.0.0.1:${server.address().port}`); return requests; } finally { server.close(); server.closeAllConnections(); }
}

T('MUST', 'terminal: a pasted block is one message, and Up recalls it', TERMINAL, async () => {
  const code = await terminal(`run ${MODEL}`, async ({ type, shown }) => {
    await shown('>>> '); type('/set parameter temperature 0\r'); await shown('Set parameter temperature to 0.'); await shown('>>> ');
    type('\x1b[200~# notes\n- one\n\n- two\x1b[201~'); await shown('- two'); type('\r'); await shown('>>> ');
    type('/show system\r'); await shown('>>> '); type('/bye\r');
  });
  assert.equal(code, 0);
  const octal = (line) => line.replace(/\\(\d{3})/g, (_, digits) => String.fromCharCode(parseInt(digits, 8)));
  assert.ok(fs.readFileSync(path.join(HOME, '.quire_history'), 'utf8').split('\n').map(octal).includes('# notes\n- one\n\n- two'));
});
T('MUST', 'terminal: hint, settings checked at once, a spinner', TERMINAL, async () => {
  await terminal(`run ${MODEL}`, async ({ type, shown }) => {
    await shown('Send a message'); type('/set parameter temprature 0.5\r'); await shown('unknown parameter "temprature"');
    type('/set parameter temperature hot\r'); await shown('"temperature" must be of type number'); type('/set think perhaps\r'); await shown('Error'); await shown('>>> '); type('/bye\r');
  });
  let answer; const held = new Promise((resolve) => { answer = resolve; });
  await recorder(held, async (address) => {
    const code = await terminal('run any Hello', async ({ shown }) => { await shown('loading any'); answer(); await shown('ok'); }, { OLLAMA_HOST: address });
    assert.equal(code, 0);
  });
});
T('MUST', 'command line: help, write errors, stdin before the argument, OLLAMA_API_KEY', NEEDS, async () => {
  const help = await cli(['help', 'run']); assert.equal(help.code, 0); assert.match(help.out, /Usage: quire run/);
  const full = fs.openSync('/dev/full', 'w');
  const failed = await cli(['ls'], { stdout: full }); fs.closeSync(full); assert.notEqual(failed.code, 0); assert.match(failed.err, /cannot write/);
  const requests = await recorder(undefined, async (address) => {
    const { code, out, err } = await cli(['run', 'any', 'Summarize', 'this'], { input: 'piped', env: { OLLAMA_HOST: address, OLLAMA_API_KEY: 'sk-1' } });
    assert.equal(code, 0, err); assert.equal(out, 'ok\n');
  });
  const asked = requests.find((request) => request.path === '/api/chat');
  assert.equal(asked.body.messages.at(-1).content, 'piped Summarize this'); assert.equal(asked.key, 'Bearer sk-1');
});
T('MUST', 'launch --print: each agent gets this server and this model, and the settings work', NEEDS, async () => {
  const printed = {};
  for (const client of ['claude', 'codex', 'opencode', 'qwen', 'cline', 'continue']) {
    const { code, out, err } = await cli(['launch', client, '--model', MODEL, '--print']); assert.equal(code, 0, err);
    assert.ok(out.includes(U.host) && out.includes(MODEL), out); printed[client] = out;
  }
  assert.ok(!fs.existsSync(path.join(HOME, '.config/quire/launch')), '--print writes nothing');
  const address = (client, pattern) => pattern.exec(printed[client])[1];
  const anthropic = new Anthropic({ baseURL: address('claude', /ANTHROPIC_BASE_URL=(\S+)/), authToken: 'none', apiKey: null, maxRetries: 0 });
  assert.equal((await anthropic.messages.create({ model: address('claude', /ANTHROPIC_MODEL=(\S+)/), max_tokens: 4, messages: U1('Hi') })).type, 'message');
  const codex = new OpenAI({ baseURL: address('codex', /base_url="([^"]+)"/), apiKey: 'x', maxRetries: 0 });
  assert.equal((await codex.responses.create({ model: address('codex', /model="([^"]+)"/), input: 'Hi', max_output_tokens: 4 })).object, 'response');
  for (const [client, pattern] of [['opencode', /"baseURL": "([^"]+)"/], ['qwen', /OPENAI_BASE_URL=(\S+)/], ['cline', /"baseUrl": "([^"]+)"/], ['continue', /apiBase: "([^"]+)"/]]) {
    const openai = new OpenAI({ baseURL: address(client, pattern), apiKey: 'none', maxRetries: 0 });
    assert.ok((await openai.chat.completions.create({ model: MODEL, max_tokens: 4, messages: U1('Hi') })).choices.length === 1, client);
  }
});
T('MUST', 'settings copied from Ollama: q4_0 and 0.0.0.0 start, and say what they mean here', NEEDS, async () => {
  await daemon({ OLLAMA_KV_CACHE_TYPE: 'q4_0', OLLAMA_HOST: '0.0.0.0:0', QUIRE_KEYS: '', QUIRE_ALLOW_REMOTE: '' }, async (address, logged) => {
    assert.match(address, /^127\.0\.0\.1:/); await logged(/q4_0 is not available, q8_0 is used/); await logged(/QUIRE_ALLOW_REMOTE=1/);
    const reply = await fetch(`http://${address}/api/chat`, { method: 'POST', body: JSON.stringify({ model: MODEL, messages: U1('Hi'), stream: false, options: { num_predict: 2 } }) });
    assert.equal(reply.status, 200, await reply.text());
  });
});
T('MUST', 'quire ps shows what /api/ps says', NEEDS, async () => {
  ok(await call('POST', '/api/generate', { model: MODEL, prompt: 'Hi', stream: false, options: { num_predict: 1 } }));
  const [model] = ok(await call('GET', '/api/ps')).models; const { code, out } = await cli(['ps']); assert.equal(code, 0);
  assert.ok(model.size > 0 && model.size < model.size_max, JSON.stringify(model)); assert.match(out, new RegExp(`${MODEL}.* ${Math.round(model.size / 1e6)} ?MB`));
});
T('MUST', 'x-ratelimit: a key with a limit counts down, then 429 with Retry-After', NEEDS, async () => {
  const keys = path.join(HOME, 'keys');
  const made = await cli(['key', 'limited', '--per-minute', '3', '--append', keys]); assert.equal(made.code, 0, made.err);
  const secret = made.out.match(/\S{20,}/)[0];
  await daemon({ QUIRE_KEYS: keys }, async (address) => {
    const openai = new OpenAI({ baseURL: `http://${address}/v1`, apiKey: secret, maxRetries: 0 });
    const remaining = [];
    for (let request = 0; request < 3; request++) {
      const { response } = await openai.chat.completions.create({ model: MODEL, max_tokens: 1, messages: U1('Hi') }).withResponse(); assert.equal(response.headers.get('x-ratelimit-limit-requests'), '3');
      remaining.push(response.headers.get('x-ratelimit-remaining-requests')); assert.match(response.headers.get('x-ratelimit-reset-requests'), /^\d+s$/);
    }
    assert.deepEqual(remaining, ['2', '1', '0']);
    const refused = await openai.chat.completions.create({ model: MODEL, max_tokens: 1, messages: U1('Hi') }).catch((error) => error);
    assert.equal(refused.status, 429); assert.ok(+refused.headers.get('retry-after') > 0); assert.equal(refused.headers.get('x-ratelimit-remaining-requests'), '0');
  });
});
