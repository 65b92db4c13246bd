"""A flame graph as speedscope reads it: one sampled profile of weighted stacks, in microseconds."""

import json

from exhume.store.read.flame_tree import FlameTree

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def render_speedscope(tree: FlameTree, title: str) -> str:
    """Every stack that has time of its own; processes are the outermost frames."""
    names, modules = tree.labels.names, tree.labels.modules
    frames = [
        {"name": name, **({"file": module} if module else {})} for name, module in zip(names, modules, strict=True)
    ]
    samples, weights = [], []
    own = tree.self_weight.tolist()
    for node in range(1, len(tree)):
        if own[node] > 0:
            samples.append([int(tree.label[each]) for each in tree.path(node)])
            weights.append(own[node])
    total = sum(weights)
    profile = {
        "type": "sampled",
        "name": title,
        "unit": "microseconds",
        "startValue": 0,
        "endValue": total,
        "samples": samples,
        "weights": weights,
    }
    document = {
        "$schema": SCHEMA,
        "name": title,
        "exporter": "exhume",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": [profile],
    }
    return json.dumps(document, separators=(",", ":"))
