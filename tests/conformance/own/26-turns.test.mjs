// Histories as clients send them, whatever the template of the model takes: nothing of them is refused or
// lost.
import { T, assert, MODEL, post } from '../lib/h.mjs';
const user = (content) => ({ role: 'user', content }), answer = (content, rest = {}) => ({ role: 'assistant', content, ...rest });
const system = (content) => ({ role: 'system', content });
const call = (args, content = null, id = 'call_Zk3vR9') => answer(content, { tool_calls: [{ id, type: 'function', function: { name: 'look', arguments: args } }] });
const result = (content, id = 'call_Zk3vR9') => ({ role: 'tool', tool_call_id: id, content });
const tools = [{ type: 'function', function: { name: 'look', description: 'Look', parameters: { type: 'object', properties: { at: { type: 'string' } } } } }];
const SHAPES = {
  'two system messages': [[system('first'), system('second'), user('hi')], ['first', 'second']],
  'a later system message': [[user('hi'), answer('ok'), system('brief'), user('go')], ['brief']],
  'a system message at the end': [[user('hi'), answer('ok'), system('brief')], ['brief']],
  'two user turns': [[user('one'), user('two')], ['one', 'two']],
  'an assistant message first': [[answer('greeting'), user('hi')], ['greeting', 'hi']],
  'two answers': [[user('hi'), answer('one'), answer('two'), user('go')], ['one', 'two']],
  'text beside a call': [[user('hi'), call('{"at":"where"}', 'wait'), result('found')], ['where', 'wait', 'found'], tools],
  'calls without tools now': [[user('hi'), call('{"at":"where"}'), result('found'), user('sum up')], ['where', 'found']],
  'malformed arguments': [[user('hi'), call('{"at": "where'), result('bad'), user('again')], ['where', 'bad'], tools],
  'an answer without content': [[user('one'), answer(null), user('two')], ['one', 'two']],
  'a result without a call': [[user('hi'), result('found')], ['found']],
};
for (const [name, [messages, shown, offered]] of Object.entries(SHAPES)) {
  T('MUST', `a history with ${name}`, { cap: 'completion' }, async () => {
    const body = { model: MODEL, messages, ...(offered ? { tools: offered } : {}) };
    const prompt = await post('/apply-template', body); assert.equal(prompt.status, 200, prompt.text);
    for (const text of shown) assert.ok(prompt.json.prompt.includes(text), `${text} is not in ${prompt.json.prompt}`);
    const openai = await post('/v1/chat/completions', { ...body, max_tokens: 1 }); assert.equal(openai.status, 200, openai.text);
    const ollama = await post('/api/chat', { ...body, stream: false, options: { num_predict: 1 } }); assert.equal(ollama.status, 200, ollama.text);
    assert.equal(ollama.json.prompt_eval_count, openai.json.usage.prompt_tokens);
  });
}
