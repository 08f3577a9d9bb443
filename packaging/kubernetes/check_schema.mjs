// check_schema.mjs FOLDER FILE.yaml...: checks Kubernetes objects against the schemas of the npm packages in
// FOLDER/node_modules (packaging/kubernetes/test.sh installs them): required fields, types and formats by
// their validators, fields that do not exist by their TypeScript types. Exits with 1 where an object is
// wrong.
import {execFileSync} from 'node:child_process';
import {mkdirSync, readFileSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {basename, join, resolve} from 'node:path';
import {pathToFileURL} from 'node:url';

const [folder, ...files] = process.argv.slice(2);
const modules = createRequire(resolve(folder, 'package.json'));
const yaml = modules('js-yaml');

// The package path that has the type of an object.
function packageOf({apiVersion}) {
  const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  if (group === 'monitoring.coreos.com') return `@kubernetes-models/prometheus-operator/${group}/${version}`;
  return ['kubernetes-models', group, version].filter(Boolean).join('/');
}

async function validate(object, path) {
  const types = await import(pathToFileURL(join(resolve(folder), 'node_modules', path, 'index.js')));
  if (!types[object.kind]) throw new Error(`${path} has no kind ${object.kind}`);
  new types[object.kind](object).validate();
}

let failed = false;
const checked = [];
const source = [];
for (const file of files) {
  for (const object of yaml.loadAll(readFileSync(file, 'utf8')).filter(Boolean)) {
    const name = `${basename(file)}: ${object.kind} ${object.metadata.name}`;
    try {
      const path = packageOf(object);
      await validate(object, path);
      const literal = JSON.stringify(object, null, 1);
      source.push(`import type {I${object.kind} as T${source.length}} from ${JSON.stringify(path)};\n` +
                  `export const o${source.length}: T${source.length} = ${literal};`);
      checked.push(object.kind);
    } catch (error) {
      console.error(`${name}: ${error.message}`);
      failed = true;
    }
  }
}

mkdirSync(join(folder, 'check'), {recursive: true});
writeFileSync(join(folder, 'check/objects.ts'), source.join('\n'));
try {
  execFileSync(process.execPath, [join(resolve(folder), 'node_modules/typescript/bin/tsc'), '--noEmit', '--strict', '--skipLibCheck',
    '--module', 'nodenext', '--moduleResolution', 'nodenext', 'check/objects.ts'], {cwd: folder, encoding: 'utf8'});
} catch (error) {
  console.error(error.stdout);
  failed = true;
}
if (failed) process.exit(1);
console.log(`${checked.length} objects are as the schemas demand: ${[...new Set(checked)].sort().join(', ')}`);
