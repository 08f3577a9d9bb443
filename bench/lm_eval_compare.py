#!/usr/bin/env python3
"""Whether lm-evaluation-harness gets the same numbers from a running daemon as from transformers.

  bench/lm_eval_compare.py http://127.0.0.1:11434 MODEL HF_DIRECTORY [--items 100]

Needs the Python package lm_eval[api,hf], and no network. HF_DIRECTORY has the weights that MODEL was made of. The daemon
keeps keys and values as transformers does only with OLLAMA_KV_CACHE_TYPE=f32. Three tasks are written to a temporary folder
and run twice: with the harness's model type `local-completions` on the daemon, and with `hf` (float32, CPU) on the
directory. Multiple choice: the log-likelihood of each of four continuations. Perplexity: that of a whole text
(loglikelihood_rolling). Generation: the greedy text. The daemon is asked three ways: with the tokens of the directory's
tokenizer, with those of its own (/tokenizer_info, /tokenize; the harness then uses no BOS), and with text. The harness cuts
long texts into windows of tokens, which as text may be other tokens: no perplexity there.

Prints, per task and way, how many items agree to within 1e-3 for each token, and the largest difference per token. The exit
status is 1 if an item does not.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import re
import sys
import tempfile

os.environ.update({"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
                   "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"})
TOLERANCE = 1e-3  # of a log-likelihood, for each token of it

FACTS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima",
         "Norway": "Oslo", "Greece": "Athens", "Cuba": "Havana", "Kenya": "Nairobi", "Poland": "Warsaw", "Iran": "Tehran"}
QUESTIONS = ["Question: What is the capital of {}?\nAnswer:", "The capital of {} is", "In {} the largest city,",
             "A traveler who comes to {} first sees", "Caf\u00e9 owners in {} say \u2013 with a smile \u2013 that"]
SUBJECTS = "the fox,an old sailor,my sister,the baker of the village,a small robot,the moon,Z\u00fcrich's mayor".split(",")
VERBS = "walked to,dreamed of,painted,forgot,sold,looked for,wrote a letter about".split(",")
PLACES = "the river,a ship with 12 sails,the caf\u00e9,a very long road,the wood behind the house,1,024 stars".split(",")


def sentence(pick):
    return f"{pick.choice(SUBJECTS).capitalize()} {pick.choice(VERBS)} {pick.choice(PLACES)}."


def write_tasks(folder, items):
    pick = random.Random(7)
    choices, texts, questions = [], [], []
    for i in range(items):
        country = pick.choice(sorted(FACTS))
        wrong = pick.sample(sorted(set(FACTS.values()) - {FACTS[country]}), 3)
        options = [FACTS[country], *wrong]
        pick.shuffle(options)
        choices.append({"query": pick.choice(QUESTIONS).format(country), "choices": options,
                        "gold": options.index(FACTS[country])})
        # The last ones are several windows long.
        texts.append({"text": " ".join(sentence(pick) for _ in range(pick.randint(1, 8) if i % 12 else 60))})
        questions.append({"query": f"{sentence(pick)} {pick.choice(QUESTIONS).format(country)}"})
    for name, rows in (("choices", choices), ("texts", texts), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = 'dataset_path: json\ndataset_kwargs:\n  data_files: {{test: {}}}\ntest_split: test\nmetadata: {{version: 1}}\n'
    (folder / "choice.yaml").write_text("task: own_choice\noutput_type: multiple_choice\n" + common.format(folder / "choices.jsonl")
        + 'doc_to_text: "{{query}}"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: gold\nmetric_list: [{metric: acc}]\n')
    (folder / "perplexity.yaml").write_text(
        "task: own_perplexity\noutput_type: loglikelihood_rolling\n" + common.format(folder / "texts.jsonl")
        + 'doc_to_text: ""\ndoc_to_target: "{{text}}"\nmetric_list: [{metric: word_perplexity}]\n')
    (folder / "generation.yaml").write_text(
        "task: own_generation\noutput_type: generate_until\n" + common.format(folder / "questions.jsonl")
        + 'doc_to_text: "{{query}}"\ndoc_to_target: ""\ngeneration_kwargs: {until: ["\\n"], max_gen_toks: 16, temperature: 0}\n'
        + "metric_list: [{metric: exact_match}]\n")


TASKS = ["own_choice", "own_perplexity", "own_generation"]


def answers(folder, model, arguments, tasks):
    """{task: [[answer of each request of an item]]}, in the order of the items."""
    import lm_eval
    from lm_eval.tasks import TaskManager
    result = lm_eval.simple_evaluate(
        model=model, model_args=arguments, tasks=tasks,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False), log_samples=True, batch_size=1,
        bootstrap_iters=0)
    return {task: [sample["resps"] for sample in sorted(samples, key=lambda one: one["doc_id"])]
            for task, samples in result["samples"].items()}


def number(response):
    """The log-likelihood of a response, however the harness nests it."""
    while isinstance(response, (list, tuple)):
        response = response[0]
    return float(response)


def text_of(response):
    while isinstance(response, (list, tuple)):
        response = response[0]
    return response


def compare(reference, actual, tokens):
    """Rows (task, requests, requests that agree, largest difference per token)."""
    rows = []
    for task in [task for task in TASKS if task in tokens and task in actual]:
        worst, same, count = 0.0, 0, 0
        for item, (expected, got) in enumerate(zip(reference[task], actual[task], strict=True)):
            for i, (one, other) in enumerate(zip(expected, got, strict=True)):
                difference = abs(number(one) - number(other)) / tokens[task][item][i]
                worst = max(worst, difference)
                same += difference <= TOLERANCE
                count += 1
        rows.append((task, count, same, worst))
    if "own_generation" not in actual:
        return rows
    texts = [(text_of(a), text_of(b)) for a, b in zip(reference["own_generation"], actual["own_generation"], strict=True)]
    rows.append(("own_generation", len(texts), sum(a == b for a, b in texts), None))
    return rows


def processor():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found.group(1) if found else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--items", type=int, default=100)
    arguments = parser.parse_args()
    try:
        import lm_eval
        import torch
        import transformers
    except ImportError as missing:
        sys.exit(f"skipped: {missing}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_tasks(folder, arguments.items)
        # It takes from generation_config.json only what ends an answer: its length and sampling go before
        # what the task says.
        directory = folder / "model"
        directory.mkdir()
        for file in arguments.directory.resolve().iterdir():
            if file.name != "generation_config.json":
                (directory / file.name).symlink_to(file)
                continue
            settings = {key: value for key, value in json.loads(file.read_text()).items() if key.endswith("_token_id")}
            (directory / file.name).write_text(json.dumps(settings))
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        count = lambda text: len(tokenizer.encode(text, add_special_tokens=False))  # noqa: E731
        rows = {file: [json.loads(line) for line in (folder / f"{file}.jsonl").read_text().splitlines()]
                for file in ("choices", "texts")}
        tokens = {"own_choice": [[count(" " + choice) for choice in row["choices"]] for row in rows["choices"]],
                  "own_perplexity": [[count(row["text"])] for row in rows["texts"]]}
        window = 512
        reference = {bos: answers(folder, "hf", {"pretrained": str(directory), "dtype": "float32", "device": "cpu",
                                                 "max_length": window, "add_bos_token": bos}, tasks)
                     for bos, tasks in ((True, TASKS), (False, TASKS[:2]))}
        # The harness takes two tokens off.
        common = {"model": arguments.model, "base_url": f"{arguments.url}/v1/completions", "num_concurrent": 4,
                  "max_retries": 1, "max_length": window + 2}
        own = {"tokenizer_backend": "huggingface", "tokenizer": str(directory), "add_bos_token": True}
        ways = {"tokens of the directory": (own, TASKS),
                "tokens of the daemon": ({"tokenizer_backend": "remote", "add_bos_token": False}, TASKS[:2]),
                "text": (own | {"tokenized_requests": False}, TASKS[:1])}
        print(f"# lm_eval_compare.py\n\nWritten by `bench/lm_eval_compare.py` on {datetime.date.today():%-d %B %Y}, {processor()}, "
              f"{os.cpu_count()} cores. {arguments.model} against transformers {transformers.__version__} (torch "
              f"{torch.__version__}, float32, CPU) with lm_eval {lm_eval.__version__}; {arguments.items} items a task. Two "
              f"log-likelihoods agree if they differ by at most {TOLERANCE:g} for each token.\n")
        print("| asked with | task | requests | agree | largest difference per token |\n| --- | --- | ---: | ---: | ---: |")
        wrong = 0
        for way, (options, tasks) in ways.items():
            got = answers(folder, "local-completions", common | options, tasks)
            for task, requests, same, worst in compare(reference[options["add_bos_token"]], got, tokens):
                wrong += requests - same if worst is not None else 0
                print(f"| {way} | {task} | {requests} | {same} | {'' if worst is None else f'{worst:.1e}'} |", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
