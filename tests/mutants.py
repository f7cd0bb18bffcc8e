"""Mutants: small changes of the code. For each of them some test must fail.

By file below `flax_attn/`: what stands there, and what is written in its place. `TESTS` says which
tests belong to a file beside the ones of its own name.
"""

ACROSS_ATTENTION = ("attention/test_equality.py", "attention/test_hidden.py")
BLOCKS = ("attention/forms/test_blockwise.py",)
PAGE = ("page/test_modules.py", "page/test_pictures.py")
TESTS = {
    "kinds/language.py": (
        "kinds/test_sentences.py",
        "commands/test_generating.py",
        "explore/test_answers.py",
    ),
    "kinds/signals.py": (
        "kinds/test_sentences.py",
        "page/test_report.py",
    ),
    "kinds/encoders.py": ("kinds/test_texts.py",),
    "models/language.py": ("models/test_gpt.py",),
    "data/sets/language.py": ("data/test_language.py",),
    "config_files.py": ("commands/test_bad_commands.py",),
    "attention/layers/attention.py": ("attention/layers/test_local_attention.py",),
    "analysis/classes.py": (
        "analysis/test_what_is_said.py",
        "analysis/test_figures.py",
    ),
    "analysis/language.py": (
        "analysis/test_what_is_said.py",
        "analysis/test_figures.py",
    ),
    "analysis/matrices.py": ("analysis/test_plotting.py",),
    "attention/cache.py": ("attention/test_sliding.py",),
    "attention/forms/blockwise.py": ("attention/test_log_sums.py",),
    "attention/forms/few_queries.py": ("attention/test_cache.py",),
    "attention/layers/other_libraries.py": ("attention/test_hidden.py",),
    "attention/layers/transformer.py": ("attention/test_hidden.py",),
    "attention/normalizers.py": (
        "attention/test_arguments.py",
        "attention/test_monotonic.py",
        "attention/test_dropout.py",
        *ACROSS_ATTENTION,
    ),
    "attention/scores.py": (
        "attention/test_core.py",
        "attention/test_edges.py",
        *ACROSS_ATTENTION,
    ),
    "attention/visibility.py": (
        "attention/test_arguments.py",
        "attention/test_limits.py",
        "attention/test_lens.py",
        "attention/forms/test_cudnn.py",
        *BLOCKS,
        *ACROSS_ATTENTION,
    ),
    "attention/checks.py": ("attention/test_arguments.py", "attention/test_limits.py"),
    "attention/core.py": ("attention/test_edges.py", *ACROSS_ATTENTION),
    "experiment/loading.py": ("experiment/test_loop.py", "experiment/test_running.py"),
    "experiment/running.py": (
        "commands/test_predicting_classes.py",
        "experiment/test_running.py",
        "experiment/test_loop.py",
    ),
    "files.py": ("runs/test_directory.py",),
    "training/mesh.py": ("experiment/test_mesh.py",),
    "experiment/programs.py": (
        "experiment/test_loop.py",
        "experiment/test_mesh.py",
        "experiment/test_running.py",
    ),
    "models/decoding.py": ("models/test_translation.py",),
    "models/translation_transformer.py": ("models/test_translation.py",),
    "kinds/user_files.py": ("commands/test_bad_commands.py",),
    "runs/directory.py": ("test_security.py", "experiment/test_running.py"),
    "runs/checkpoints.py": ("test_security.py",),
    "runs/examples.py": ("runs/test_reading.py", "test_security.py"),
    "runs/reading.py": ("test_security.py",),
    "runs/sums.py": ("runs/test_checkpoints.py", "test_security.py"),
    "runs/untrusted.py": ("runs/test_sums.py", "test_security.py"),
    "stopping.py": ("experiment/test_loop.py", "test_faults.py"),
    "kinds/classification.py": ("commands/test_predicting_classes.py",),
    "kinds/task.py": ("kinds/test_translation.py",),
    "training/optimizer.py": ("experiment/test_running.py",),
    "training/epoch.py": (
        "training/test_segments.py",
        "training/test_state.py",
        "experiment/test_mesh.py",
    ),
    "commands/exploring.py": ("test_cli.py",),
    "commands/progress.py": ("experiment/test_running.py",),
    "kinds/requests.py": ("commands/test_predicting_translations.py",),
    "commands/training.py": ("test_cli.py",),
    "data/builders.py": ("data/test_files.py",),
    "data/contents.py": ("experiment/test_own_data.py",),
    "data/files.py": ("test_bounded.py",),
    "data/mnist.py": ("data/test_files.py",),
    "data/sets/memory.py": ("experiment/test_face.py",),
    "data/sets/series.py": ("data/test_splits.py",),
    "data/sets/texts.py": ("data/test_files.py", "data/test_splits.py"),
    "data/table.py": ("data/test_files.py",),
    "kinds/evidence.py": ("commands/test_predicting_tables.py",),
    "errors.py": ("commands/test_bad_commands.py",),
    "experiment/config.py": (
        "commands/test_bad_commands.py",
        "experiment/test_face.py",
        "experiment/test_running.py",
    ),
    "experiment/debugging.py": ("experiment/test_loop.py",),
    "explore/primitives.py": ("explore/test_live_primitives.py",),
    "kinds/replies.py": ("explore/test_answers.py",),
    "kinds/step_scores.py": ("explore/test_answers.py",),
    "explore/under_lens.py": ("explore/test_answers.py",),
    "attention/layers/multi_head.py": (
        "attention/test_arguments.py",
        "attention/test_hidden.py",
    ),
    "attention/layers/learned.py": ("attention/layers/test_positions.py",),
    "kinds/texts.py": ("commands/test_predicting_tables.py",),
    "data/sets/pairs.py": ("data/test_pairs.py",),
    "analysis/images.py": (
        "analysis/test_what_is_said.py",
        "analysis/test_figures.py",
    ),
    "commands/following.py": ("page/test_following.py",),
    "explore/graph.py": ("explore/test_live_primitives.py",),
    "page/controls/settings.mjs": ("explore/test_first_screen.py",),
    "page/shapes/numbers.mjs": ("explore/test_first_screen.py",),
    "kinds/series.py": ("kinds/test_sentences.py",),
    "kinds/images.py": ("kinds/test_sentences.py",),
    "kinds/translation.py": ("kinds/test_sentences.py",),
    "analysis/losses.py": ("analysis/test_what_is_said.py",),
    "analysis/series.py": ("analysis/test_what_is_said.py",),
    "analysis/tables.py": ("analysis/test_what_is_said.py",),
    "analysis/texts.py": ("analysis/test_what_is_said.py",),
    "analysis/translation.py": ("analysis/test_what_is_said.py",),
    "analysis/shapes.py": ("analysis/test_what_is_said.py",),
    "published/families.py": ("published/test_options.py",),
    "published/folder.py": ("published/test_bad_folders.py",),
    "page/dom.mjs": PAGE,
    "page/pictures/curves.mjs": PAGE,
    "page/pictures/effects.mjs": PAGE,
    "page/pictures/evidence.mjs": PAGE,
    "page/pictures/heat.mjs": PAGE,
    "page/pictures/overview.mjs": PAGE,
    "page/views/images.mjs": PAGE,
    "page/views/language.mjs": PAGE,
    "page/views/numbers.mjs": PAGE,
    "page/views/series.mjs": PAGE,
}
MUTANTS = {
    "attention/forms/devices.py": [
        ("indices[: self.devices - 1 : -1]", "indices[self.devices :]"),
        ("to_odd = [(i, owner(2 * i + 1))", "to_odd = [(i, owner(2 * i))"),
        ("[(to, i) for i, to in pairs]", "pairs"),
        ("(number + self.first - hop)", "(number + self.first + hop)"),
        ("_send(ring, sums, ring.first - last)", "_send(ring, sums, ring.first)"),
        ("np.minimum(keys.indices().ravel(), num_keys - 1)", "np.arange(num_keys)"),
        ("if is_causal and ring.hops == devices:", "if is_causal:"),
    ],
    "attention/masks.py": [
        ("jnp.greater_equal(*aligned(query", "jnp.greater(*aligned(query"),
        ("-distance <= min(left, FARTHEST)", "-distance < min(left, FARTHEST)"),
        ("jnp.logical_and(*aligned(first", "jnp.logical_or(*aligned(first"),
    ],
    "attention/visibility.py": [
        (
            "jax.eval_shape(function, queries, keys).ndim > 2",
            "jax.eval_shape(function, queries, keys).ndim >= 2",
        ),
        (
            "axes = groups if array.shape[-3] > 1 else (1, 1)",
            "axes = groups[::-1] if array.shape[-3] > 1 else (1, 1)",
        ),
        ("jnp.where(finite, bias, 0)", "bias"),
        ("visible.append(finite)", "pass"),
        (
            "jnp.less(*aligned(keys, self.key_lengths))",
            "jnp.less_equal(*aligned(keys, self.key_lengths))",
        ),
        ("positions = queries + self.query_offset", "positions = queries"),
        ("jnp.less_equal(*aligned(start, last_key))", "jnp.less(*aligned(start, last_key))"),
        ("jnp.less_equal(*aligned(first_key, end))", "jnp.less(*aligned(first_key, end))"),
        ("least[..., 0, :, None] <= most_key", "least[..., 0, :, None] < most_key"),
        ("queries < real_queries", "queries <= real_queries"),
        ("xp.maximum(first, 0)", "first"),
        ("return hide(query, has_key), hide(key, has_query), hide(", "return query, key, hide("),
        ("change(jnp.asarray(bias(queries, keys)))", "jnp.asarray(bias(queries, keys))"),
        ("| (keys < self.prefix_lengths)]", "| (keys <= self.prefix_lengths)]"),
        (
            "jnp.minimum(self.prefix_lengths, real_keys) > 0",
            "jnp.minimum(self.prefix_lengths, real_keys) >= 0",
        ),
        (
            "jnp.less(*aligned(first_key, self.prefix_lengths))",
            "jnp.less_equal(*aligned(first_key, self.prefix_lengths))",
        ),
        ("self.mask, query_offset=self.query_offset)", "self.mask)"),
        (
            "queries = jnp.minimum(start + jnp.arange(size), num_queries - 1)",
            "queries = start + jnp.arange(size)",
        ),
        (".in_groups(self.heads[1])", ".in_groups(self.heads[0])"),
    ],
    "attention/forms/blockwise.py": [
        ("rescale * total + shares", "total + shares"),
        ("rescale * context + more", "context + more"),
        ("jnp.where(new == -jnp.inf, 0, new)", "new"),
        (
            "pull(weights * (functions.scale * change - block.along))",
            "pull(weights * functions.scale * change)",
        ),
        ("jnp.where(is_kept, change, 0)", "change"),
        ("keepdims=True) - of_logs", "keepdims=True)"),
        ("sums.queries.at[block.i].add(", "sums.queries.at[0].add("),
        ("    if is_padded:\n        real", "    if False:\n        real"),
        ("1 / (1 - call.dropout_rate)", "1.0"),
        ("jnp.argsort(~visible,", "jnp.argsort(visible,"),
        ("    log = jnp.where(jnp.isnan(total), jnp.nan, log)\n", ""),
    ],
    "attention/scores.py": [("softcap * jnp.tanh(scores / softcap)", "softcap * jnp.tanh(scores)")],
    "attention/normalizers.py": [
        ("if not wide and jnp.iscomplexobj(scores)", "if False and jnp.iscomplexobj(scores)"),
        ("weights / (1 - rate)", "weights"),
        (".ravel() for indices in pairs]", ".ravel() for indices in (pairs[0], pairs[0])]"),
        ("jax.random.fold_in(rng, row)", "rng"),
        ("jnp.where(weights != 0, tangents[0], 0)", "tangents[0]"),
        ("keepdims=True), 1)", "keepdims=True), 2)"),
        ("1 - spread, 0) / rank", "1 - spread, 0) * rank"),
        ("mask & (is_among | ~_finite(scores))", "mask & is_among"),
        ("scores - jnp.log(-jnp.log(uniform))", "scores + jnp.log(-jnp.log(uniform))"),
        ("jnp.where(has_key, weights, previous)", "weights"),
    ],
    "attention/core.py": [
        ("self.dropped(weights), value", "weights, value"),
        ("wide(value.dtype)", "value.dtype"),
    ],
    "attention/cache.py": [
        ("step >= count - slots", "step >= 0"),
        ("step < count, (count", "step <= count, (count"),
        ("wrong |= start + count > slots", "wrong |= start > slots"),
        ("keys >= 0))", "keys >= -1))"),
        ("window[0] > most:", "window[0] > most + 1:"),
    ],
    "attention/forms/cudnn.py": [
        ("of_keys = jnp.clip(of_keys, 1, num_keys)", "of_keys = jnp.clip(of_keys, 0, num_keys)"),
        ("jnp.minimum(of_queries, of_keys + left)", "of_queries"),
        (
            "of_rows(visible.query_offset) + visible.right + 1)",
            "of_rows(visible.query_offset) + 1)",
        ),
        ("    return hide(context, has_key)", "    return context"),
        ("hide_unseen(*call[:3], has_key, has_query)", "call[:3]"),
        ("kernels.why_not_terms(call, TERMS)", '""'),
        ("width % 8 or", "width % 4 or"),
    ],
    "attention/forms/splash.py": [
        ("meets_itself = visible.is_packed and", "meets_itself ="),
        ("visible.query_offset == 0 and not lengths", "visible.query_offset == 0"),
        ("keys.stop - 1 < first - before", "keys.stop - 1 < last - before"),
        ("has_query &= jax.vmap(is_among)(key_ids, query_ids, has_key)", "pass"),
        ("kernels.why_not_terms(call, TERMS)", '""'),
        ("* platforms.num_copies() < TPU_DENSE", "< TPU_DENSE"),
    ],
    "platforms.py": [
        ('"bfloat16": "default", "tensorfloat32"', '"bfloat16": "high", "tensorfloat32"'),
        ("size > 1 and kind != manual", "kind != manual"),
        (
            "_compiling_for.value or _of_mesh()",
            "_of_mesh() or _compiling_for.value",
        ),
    ],
    "attention/forms/few_queries.py": [
        ("lambda: context, lambda: exact(query, key, value))", "lambda: context, lambda: context)"),
        ("return context if jnp.isfinite(context).all() else exact(*arrays)", "return context"),
    ],
    "attention/layers/other_libraries.py": [
        ('options.get("causal") or options.get("window")', 'options.get("causal")'),
    ],
    "attention/layers/transformer.py": [
        ("has_key | has_query | jnp.isfinite(x)", "has_key | jnp.isfinite(x)"),
        (
            'crossing = {"mask": memory_mask, "query_lengths": lengths,',
            'crossing = {"mask": memory_mask,',
        ),
    ],
    "attention/checks.py": [
        ('check_flag("causal", causal)', "pass"),
        ("0 if causal else near(right)", "(near(right) or 0) if causal else near(right)"),
    ],
    "attention/positions.py": [
        ("-jnp.arange(0, features, 2) / features", "-jnp.arange(0, features, 2) / (features - 1)")
    ],
    "attention/lens.py": [
        ("return setting.shape, np.asarray(setting)", "return np.asarray(setting)")
    ],
    "training/epoch.py": [
        ("keep_whole(plan(order_key, epoch))", "plan(order_key, epoch)"),
        ("better = score < self.best_score", "better = score <= self.best_score"),
        ("score < self.plateau_score *", "score <= self.plateau_score *"),
        ("waited > plateau.patience", "waited >= plateau.patience"),
        ("jnp.where(falls, 0, waited)", "waited"),
        ("epoch - best_epoch >= patience", "epoch - best_epoch > patience"),
        ("bad_in_a_row >= max_bad_steps", "bad_in_a_row > max_bad_steps"),
        ("bad_steps=self.bad_steps + 1", "bad_steps=self.bad_steps"),
        ("return choose(self.stopped, self, after)", "return after"),
        ("jax.random.fold_in(jax.random.key(self.seed), epoch)", "jax.random.key(self.seed)"),
        ('params["length"] if name == "scan" else 1', "1"),
        ("max(weigh(branch.jaxpr)", "min(weigh(branch.jaxpr)"),
        ("jax.random.fold_in(key, state.step)", "key"),
        ("optax.tree.scale(state.rate_scale, updates)", "updates"),
        ("bad_in_a_row=jnp.int32(0), **changes", "**changes"),
        ("is_finite((value, metrics, changes))", "is_finite(value)"),
        ("choose(\n        state.stopped,", "choose(\n        jnp.bool_(False),"),
        ("jnp.isfinite(leaf).all()", "jnp.isfinite(leaf).any()"),
        ("choose(first == 0, reset(state.carry), state.carry)", "reset(state.carry)"),
        ("choose(first == 0, reset(state.carry), state.carry)", "state.carry"),
        ("fori_loop(first, last,", "fori_loop(first, last - 1,"),
        ("lax.cond(state.stopped,", "lax.cond(jnp.bool_(False),"),
        ("is_finite((state.params, state.carry, state.opt_state, sums))", "is_finite(sums)"),
        ("    carry = reset(carry)\n", ""),
        ("cut(np.ones(num_examples, bool))", "cut(np.ones(num_examples, bool)) | True"),
        (
            "orders.reshape(-1, batch_size)[:num_steps]",
            "orders.reshape(-1, batch_size)[-num_steps:]",
        ),
    ],
    "training/buckets.py": [
        ("jax.random.split(jax.random.fold_in(key, number), len(", "jax.random.split(key, len("),
        ('{"mask": rows >= 0}', '{"mask": rows >= -1}'),
        ("jnp.maximum(rows, 0)", "jnp.maximum(rows, 1)"),
        ("jax.random.fold_in(order_key, number)", "jax.random.fold_in(key, number)"),
        ("max(int(lengths.max()), 1)", "int(lengths.max())"),
    ],
    "training/metrics.py": [
        ("share(2 * hits, predicted + true)", "share(hits, predicted + true)"),
        ("smoothing * logits.mean(axis=-1)", "smoothing * logits.max(axis=-1)"),
        ("jnp.argmax(logits, axis=-1) == labels", "jnp.argmin(logits, axis=-1) == labels"),
        ("one_hot(labels) * mask[:, None]", "one_hot(labels)"),
        ("(support + self.matrix.sum(axis=-2) > 0)", "(support > 0)"),
    ],
    "training/optimizer.py": [
        ("leaf.ndim > 1", "leaf.ndim > 0"),
        ("if not self.clip_norm:", "if self.clip_norm:"),
    ],
    "runs/checkpoints.py": [
        ("folder.mkdir(parents=True)", "folder.mkdir(parents=True, exist_ok=True)"),
        ("if later > newest]", "if later > Progress(newest.epoch + 1)]"),
        ("max(largest, metrics_log.LARGEST)", "largest"),
        ("max(largest, metrics_log.LARGEST)", "2**63"),
        ("progress.name != folder.name", "False"),
        ("(METRIC_SUMS in names) != bool(progress.step)", "False"),
        ("(folder / metrics_log.NAME).write_bytes(metrics)", "(folder / metrics_log.NAME).touch()"),
        ("return all(name in (*FILES", "return any(name in (*FILES"),
        ("and not path.is_symlink()]", "]"),
        ("epochs[:KEEP]", "epochs[:1]"),
        (
            "in sorted(_saved(directory), reverse=True):\n        folder = directory / "
            "progress.name\n        if not",
            "in sorted(_saved(directory)):\n        folder = directory / "
            "progress.name\n        if not",
        ),
        ("if damaged and only_newest:", "if False:"),
        ("        sync(directory)\n", ""),
        ("not IN_ALL <= names <= FILES", "False"),
    ],
    "runs/arrays.py": [
        ("if expected.get(name) != stored.get(name):", "if False:"),
        ("jnp.array(stored[name])", "jnp.array(stored[name]) * 1"),
    ],
    "runs/untrusted.py": [
        ('("", ".", "..")', '("",)'),
        ('set("\\\\:\\0")', "set()"),
        ('for folder in list(path.parents)[: name.count("/")]:', "for folder in ():"),
        ("if not stat.S_ISREG(status.st_mode):", "if False:"),
        ("if status.st_size > largest:", "if False:"),
        ("        _check_depth(content)\n", ""),
        ("type(value) is int and 0 <= value < 2**63", "isinstance(value, int)"),
        ("or key in kind.__required_keys__", ""),
        ("mode = os.lstat(path).st_mode", "mode = os.stat(path).st_mode"),
    ],
    "runs/examples.py": [
        ("sizes.setdefault(letter, size) != size", "False"),
        ("array.dtype.kind not in kinds or", ""),
        ('len(classes) != sizes["c"]', "False"),
        ("0 <= targets.min() <= targets.max() < sizes", "0 <= targets.max() < sizes"),
        ("> LARGEST\n", "> 2 * LARGEST\n"),
        ("if name.startswith(ATTENTION):\n            check", "if False:\n            check"),
        ("sizes.get(letter, size) != size", "False"),
    ],
    "runs/directory.py": [
        ("            self.clear()\n", "            pass\n"),
        ('(self.path / "summary.json").unlink(missing_ok=True)', "pass"),
        ('if "config.json" not in sums.changes(path):', "if True:"),
        ("old < new)", "old != new)"),
        ("key.startswith(FREE)", "False"),
        ("            _check_entries(path)\n", ""),
        ("    sums.check(path)\n", ""),
        ("        check_limits(flatten(config))\n", ""),
        ('names.append(f"checkpoints/{newest.name}/{sums.SUMS}")', "pass"),
        ("if not is_run(path):", "if False:"),
        ("(self.path / sums.SUMS).unlink(missing_ok=True)", "pass"),
        ("for path in figures if _is_listed(path)]", "for path in ()]"),
    ],
    "runs/lock.py": [
        ("fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB"),
        ("if _is_there(file, descriptor):", "if True:"),
        ("has_one(OWN) and has_one(COMMON)", "has_one(OWN)"),
        ("has_one(OWN) and has_one(COMMON)", "has_one(COMMON)"),
        ("os.close(descriptor)\n        remove_empty(made)", "remove_empty(made)"),
        ("os.ftruncate(descriptor, 0)", "pass"),
        (
            "except OSError:  # a file system without locks\n        pass",
            "except OSError:  # a file system without locks\n        raise",
        ),
    ],
    "runs/metrics_log.py": [
        ("if len(rows) > MOST_ROWS:", "if False:"),
        ("self.content += lines", "self.content = bytearray(lines)"),
        ("self.content = bytearray(as_lines(rows))", "self.content += as_lines(rows)"),
        ('open(self.path, "ab")', 'open(self.path, "wb")'),
    ],
    "runs/reading.py": [
        ('if "summary.json" not in sums.read(path):', "if False:"),
        ('[(row["epoch"], row["seed"]) for row in rows] != every', "False"),
        ('len(metric["values"]) != (1', 'len(metric["values"]) < (1'),
        ("not diverged.keys() < set", "not diverged.keys() <= set"),
    ],
    "runs/rows.py": [
        ('last | {"epoch": row["epoch"]} if done else row', "row"),
        ("ddof=1", "ddof=0"),
        ("if not math.isfinite(value):", "if False:"),
        ("values[seeds]", "values"),
        ("before[-len(rows) :]", "before[: len(rows)]"),
    ],
    "runs/sums.py": [
        ("same_size and sum_of(folder, name) == then", "same_size"),
        ('os.lstat(folder / name).st_size == then["bytes"]', "True"),
        ("if not os.path.lexists(folder / name):", "if False:"),
        ('if then["bytes"] > largest:', "if False:"),
        ("(*(folder / name for name in listed), folder)", "(folder,)"),
        ("(*(folder / name for name in listed), folder)", "(folder / name for name in listed)"),
        (
            "with replacing(folder / SUMS) as partial:\n        partial.write_text(",
            "if True:\n        (folder / SUMS).write_text(",
        ),
        ("if not is_figure(name):", "if is_figure(name):"),
        ("if not untrusted.is_plain(name) or", "if"),
        ("or re.fullmatch(NAME, name, re.DOTALL) is None", ""),
    ],
    "files.py": [
        ("partial.unlink(missing_ok=True)\n        raise", "raise"),
        ("if keep and path.exists():", "if path.exists():"),
        ('folder.glob(f".*{PARTIAL}*")', 'folder.glob(f"*{PARTIAL}*")'),
    ],
    "stopping.py": [
        ("if not (first and stop.saves):", "if not stop.saves:"),
        ("os._exit(128 + number)", "os._exit(number)"),
        ("stack.callback(signal.signal, number, before[number])", "pass"),
        ("not in (signal.SIG_IGN, None)", "is not None"),
    ],
    "experiment/programs.py": [
        ('"shuffle": getattr(config.data, "shuffle", True)}', '"shuffle": True}'),
        ('not in ("name", "parent", "across")', 'not in ("name", "parent")'),
        ("out_shardings=out)", "out_shardings=out, donate_argnums=0)"),
        ("max_bad_steps=config.max_bad_steps)", "max_bad_steps=0)"),
    ],
    "experiment/processes.py": [
        ("return jax.process_index() == 0", "return True"),
        ("padded[:] = content", "padded[:] = content[::-1]"),
        ("if here.get(key) != first.get(key)]", "if key not in here]"),
        ("int(number) >= int(count)", "int(number) > int(count)"),
        ("if count is None and number is None:", "if count is None or number is None:"),
        ('flatten(values | {"jax": jax.__version__})', "flatten(values)"),
    ],
    "training/mesh.py": [
        (
            "function(*one_seed, *args[mapped:]))(args[:mapped])",
            "function(*one_seed, *args[1:]))(args[:mapped])",
        ),
        ("== batch_size % size == 0:", "== 0:"),
        ("range(math.gcd(num_devices, num_seeds), 0, -1)", "(1,)"),
        ("return _placed(batch, ROWS)", "return batch"),
        (
            'SEEDS, ROWS, EVERYWHERE = P("seed"), P("data"), P()',
            'SEEDS, ROWS, EVERYWHERE = P("seed"), P(), P()',
        ),
    ],
    "experiment/loading.py": [
        (
            "params_by_seed(kept_params(config, checkpoint.state), config)",
            "dict.fromkeys(config.seeds, params_by_seed(kept_params(config, checkpoint.state), "
            "config)[config.seeds[0]])",
        ),
        ("if str(seed) not in diverged}", "}"),
        ("    if derived is not None and not sums.read(path):", "    if False:"),
    ],
    "kinds/classification.py": [
        ("len(shares) if len(shares) <= MOST_DESCRIBED else MOST_CLASSES", "len(shares)"),
        ('"support": int(matrices[0, i].sum())', '"support": int(matrices[0, :, i].sum())'),
        ("count(probabilities(logits).mean(axis=0))", "count(logits.mean(axis=0))"),
        (
            "np.mean([probabilities(logits) for logits in outputs], axis=0)",
            "probabilities(outputs[0])",
        ),
    ],
    "kinds/language.py": [
        ("share = 100 * float(np.exp(-loss))", "share = 100 * float(1 - loss)"),
        ('text[1:].partition("\\n")[0]', "text[1:]"),
        ('self.encoded("") if self.data.by_line else []', "[]"),
        ("self.data.most_repeated", "self.data.max_length // 2"),
        ('f"{name}, head {head}"', 'f"{name}, head {head + 1}"'),
        ("weights[0][:, -1] for name, weights", "weights[0][:, 0] for name, weights"),
        ("jnp.mean(jnp.stack(shares), axis=0)", "shares[0]"),
        ("if len(whole) > most else None", "if len(whole) >= most else None"),
    ],
    "kinds/signals.py": [
        ('np.sqrt(run.mean("mse"))) * unit', 'np.sqrt(run.mean("mse")))'),
    ],
    "models/forward.py": [
        ("int(part) if i % 2 else part", "part"),
    ],
    "models/generation.py": [
        ("most = model.max_length - num_steps", "most = model.max_length"),
        ("read if is_full.all() else _choose(is_full, read, state)", "read"),
        ("state, first + jnp.arange(num_steps))", "state, jnp.arange(num_steps))"),
    ],
    "models/recurrent.py": [
        ("if number > 1:", "if number >= 1:"),
    ],
    "models/cpu/recurrence.py": [
        ("terms = (jnp.where(is_going, terms[0], 0), *terms[1:])", "pass"),
    ],
    "models/cpu/largest.py": [
        ("return num_larger < k", "return num_larger <= k"),
    ],
    "models/decoding.py": [
        ('"forbidden": (0, 1)', '"forbidden": (0,)'),
    ],
    "models/search.py": [
        ("decoded.lengths + last.ended", "decoded.lengths + 1"),
    ],
    "models/images.py": [
        ("2), 0, 2 * limit + 1)", "2), 0, 2 * limit)"),
    ],
    "models/initializers.py": [
        (
            "[orthogonal(key, (width, width), dtype) for key in keys]",
            "[orthogonal(keys[0], (width, width), dtype) for _ in keys]",
        ),
    ],
    "models/translation_transformer.py": [
        ("layer(tokens) * self.features**0.5 + positions", "layer(tokens) + positions"),
    ],
    "kinds/texts.py": [
        ('encoder, rows, batches["test"], words,', 'encoder, rows, ordered["test"], words,'),
        (
            "np.linspace(0, len(texts) - 1, min(len(texts), request.num_texts))",
            "np.arange(min(len(texts), request.num_texts))",
        ),
    ],
    "kinds/evidence.py": [
        ("change = part[1:] - part[0]", "change = part[0] - part[1:]"),
        ("np.delete(array, i, axis=0)", "np.delete(array, 0, axis=0)"),
        ("[length, *[length - 1] * length]", "[length, *[length] * length]"),
        ("means[word][i] < 0", "means[word][i] > 0"),
    ],
    "kinds/baselines.py": [
        ("Counter(labels)", "Counter(right)"),
    ],
    "data/table.py": [
        ("merits[separator] = named, alike", "merits[separator] = alike, named"),
        ("LOOKED_AT = 100", "LOOKED_AT = 1"),
        ("below if has_header else numbered", "below"),
    ],
    "kinds/numbers.py": [
        ("number.mean(axis=1) if number.ndim == 2", "number[:, 0] if number.ndim == 2"),
        ("* self.normalization.std\n", "\n"),
        ('loss = loss + weighted_mean(aux["penalty"], mask).compute()', "pass"),
        ("Normalization.of(numbers)", "Normalization.of(*(one for _, one in splits.values()))"),
        (
            "(np.mean([number_of(one) for one in outputs], axis=0))\n        check_finite",
            "(number_of(outputs[0]))\n        check_finite",
        ),
        ("largest.append(max(counts))", "largest.append(counts[0])"),
        ("rows.shapes.heights[:, 2:]", "rows.shapes.heights[:, :2]"),
        ('if len(arrays["inputs"]) > len(arrays["targets"]):', "if False:"),
        ("column = predicted if output.suffix", "column = predicted[::-1] if output.suffix"),
        (
            "test_fraction = 0.0 if test else self.test_fraction",
            "test_fraction = self.test_fraction",
        ),
    ],
    "kinds/task.py": [
        ("return np.max(lengths, axis=0) if lengths", "return lengths[0] if lengths"),
    ],
    "kinds/encoders.py": [
        (
            "cls(data, source, target)\n        check_sizes(encoder.sizes(), kept.sizes)",
            "cls(data, source, target)",
        ),
        ("| (lengths > most)", "| (lengths >= most)"),
        ("for part in parts if part[0] not in (START, END)]", "for part in parts]"),
    ],
    "analysis/classes.py": [
        ("counts.sum(axis=1, keepdims=True)", "counts.sum(axis=0, keepdims=True)"),
    ],
    "analysis/language.py": [
        ("rows[:, :-1] if rows.shape[1] > 1 else rows", "rows"),
    ],
    "analysis/matrices.py": [
        ("np.isnan(weights[visible]).any()", "np.isnan(weights).any()"),
    ],
    "analysis/losses.py": [
        ("{run.name: pair[1] for run", "{run.name: pair[0] for run"),
        ('curve(run.sound_rows, f"{split}/{metric}")', 'curve(run.rows, f"{split}/{metric}")'),
    ],
    "kinds/user_files.py": [
        ("os.path.realpath(path) == os.path.realpath(source)", "path == source"),
        (
            "pictures.read_ink(path) if light_ink else pictures.read(path, in_colour)",
            "pictures.read_ink(path)",
        ),
    ],
    "bounded.py": [
        ("path if status.st_size else os.devnull", "path"),
        (
            'return np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")',
            'return np.memmap(path, dtype, "r", offset, shape, "C")',
        ),
    ],
    "experiment/debugging.py": [
        ("seed = int(np.argmin(np.asarray(finite)))", "seed = int(np.argmax(np.asarray(finite)))"),
    ],
    "experiment/running.py": [
        ("idle = jax.device_count() - mesh.size", "idle = jax.device_count() - size"),
        ("checkpoints.discard_after(self.directory.checkpoints, first.progress)", "pass"),
        ('seconds = checkpoint.metadata["train_seconds"]', "seconds = 0.0"),
        (
            "states, sums = self.programs.choose(finite, (states, sums), guarded)",
            "states, sums = guarded",
        ),
        ("sums = checkpoint.metric_sums or sums", "pass"),
        ("rows = checkpoint.rows()", "rows = []"),
        ("if self.stop.heard():", "if False:"),
        ("diverged = ~stopped & (bad |", "diverged = ~stopped & bad & (bad |"),
        ("began = now.seconds - time.perf_counter()", "began = -time.perf_counter()"),
        ("        COPIES\n        * config.num_seeds\n", "        COPIES\n"),
        (
            "for name in filter(sums.is_figure, sums.changes(directory.path)):",
            "for name in ():",
        ),
        ("int(states.step.max())", "int(states.step[0])"),
        ("    loop.log.write()", "    pass"),
    ],
    "commands/generating.py": [
        ("text = texts[0].rstrip(UNFINISHED)", "text = texts[0]"),
    ],
    "commands/progress.py": [
        ('for name in rows[0] if "/" in name}', "for name in rows[0]}"),
        ("completed=epoch - 1 + done", "completed=epoch + done"),
        ("seconds, last[0] = now - last[0], now", "seconds = now - last[0]"),
        ("completed=epoch - 1 + done, epoch=epoch", "completed=epoch + done, epoch=epoch"),
    ],
    "kinds/requests.py": [
        (
            "write(stack.enter_context(replacing(Path(os.path.realpath(path)))))",
            "with replacing(path) as partial:\n                    write(partial)",
        ),
    ],
    "data/builders.py": [
        ("            log.setLevel(level)", "            pass"),
    ],
    "data/files.py": [
        ("line, length = reader.line_num + 1, 0", "line = reader.line_num + 1"),
    ],
    "data/sets/memory.py": [
        ("issubclass(kind, base)), None)", "issubclass(base, base)), None)"),
        ("        for part in parts:\n", "        for part in parts[:1]:\n"),
    ],
    "explore/primitives.py": [
        (
            'if groups != (1, 1) or any(n != 1 for n in params["lhs_dilation"]):',
            "if groups != (1, 1):",
        ),
    ],
    "explore/server.py": [
        ("        self.close_connection = True\n", ""),
    ],
    "errors.py": [
        ("half = (longest - 3) // 2", "half = longest // 2"),
        ("*range(0x7F, 0xA0)", "*range(0x80, 0xA0)"),
    ],
    "experiment/config.py": [
        ('{module, module.split(".")[0]} & set(allowed)', "{module} & set(allowed)"),
        ('name.endswith("dropout_rate")', 'name == "dropout_rate"'),
        ("self.seed + self.num_seeds > NUM_SEEDS", "self.seed + self.num_seeds >= NUM_SEEDS"),
        ("return self.keep_best or self.optimizer.plateau_patience > 0", "return self.keep_best"),
    ],
    "commands/exploring.py": [
        ("if len(set(shapes)) > 1:", "if len(set(shapes)) > 2:"),
        ('("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")', '("DISPLAY", "BROWSER")'),
    ],
    "commands/training.py": [
        ("    gc.enable()\n", ""),
    ],
    "data/contents.py": [
        (
            'return label.decode(errors="replace") if isinstance(label, bytes) else str(label)',
            "return str(label)",
        ),
    ],
    "data/mnist.py": [
        ("(labels >= NUM_CLASSES).any()", "(labels > NUM_CLASSES).any()"),
    ],
    "data/pairs.py": [
        (
            "if all(pair.source.isdecimal() for pair in pairs):",
            "if any(pair.source.isdecimal() for pair in pairs):",
        ),
    ],
    "data/splits.py": [
        ("if count < len(shares):", "if count <= len(shares):"),
        ("[np.sort(part) for part in np.split(order, ends)]", "np.split(order, ends)"),
    ],
    "data/text.py": [
        (
            '_without(_unescape(_unescape(text)), "<", ">", " ")',
            '_without(_unescape(text), "<", ">", " ")',
        ),
    ],
    "data/sets/series.py": [
        (
            "key = jax.random.fold_in(jax.random.key(self.seed), split)",
            "key = jax.random.key(self.seed)",
        ),
    ],
    "models/language.py": [
        (
            'return model.apply({"params": params}, tokens)[0]',
            'return model.apply({"params": params}, tokens, train=True)[0]',
        ),
    ],
    "data/sets/language.py": [
        ('[line for line in text.split("\\n") if line]', 'text.split("\\n")'),
    ],
    "config_files.py": [
        ("    if stem not in names():\n        return None\n    try:", "    try:"),
    ],
    "data/sets/texts.py": [
        ("fractions, seed, has_test=test is not None)", "fractions, seed)"),
        ('if name == "train" and self.phrases:', "if self.phrases:"),
        ("round(sum(numbers) / len(numbers))", "sum(numbers) // len(numbers)"),
    ],
    "kinds/replies.py": [
        (
            "return weights[:, None] if of_hops(name) else weights[None]",
            "return weights[None]",
        ),
    ],
    "explore/showing.py": [
        ("    records = with_own_names(records)\n", ""),
    ],
    "kinds/step_scores.py": [
        (
            "jnp.concatenate([jnp.full_like(tokens[..., :1], end), tokens[..., :-1]], axis=-1)",
            "tokens",
        ),
        (
            '_, scored = apply(state, x, method="step")\n        state, _ = apply(state, x, meth',
            'state, scored = apply(state, x, method="step")\n        _, _ = apply(state, x, meth',
        ),
    ],
    "explore/under_lens.py": [
        ("        if queries == keys:\n", "        if True:\n"),
        (
            "reach = FAR if settings.reach is None else min(settings.reach, FAR)",
            "reach = min(settings.reach or FAR, FAR)",
        ),
    ],
    "attention/layers/multi_head.py": [
        ("has_period and (not self.rotary or", "has_period and (False and"),
        (
            'gate=nn.sigmoid(self._project("gate", sizes, shown))',
            'gate=nn.sigmoid(self._project("gate", sizes, query))',
        ),
    ],
    "attention/layers/attention.py": [
        ("**dropout(self, train),\n            **limits,  # pyright", "**limits,  # pyright"),
        (
            "normalizer=functools.partial(choose, temperature=self.temperature),",
            "normalizer=choose,",
        ),
    ],
    "attention/layers/learned.py": [
        ("        positions = jnp.where(positions < 0, self.max_length, positions)\n", ""),
    ],
    "attention/nnx.py": [
        (
            'options: Options = {"lengths": lengths, "mask": mask, "bias": bias, "window": window}',
            'options: Options = {"lengths": lengths, "mask": mask, "window": window}',
        ),
    ],
    "kinds/translation.py": [
        ("num_best=min(BEST, decoding.beam),", "num_best=BEST,"),
    ],
    "data/sets/pairs.py": [
        ('splits["train"][: self.num_train or None]', 'splits["train"]'),
        ("if num_valid + num_test >= len(groups):", "if num_valid + num_test > len(groups):"),
    ],
    "models/gpt.py": [
        ("return self.dropout(x, deterministic=not train)", "return x"),
    ],
    "page/shapes/numbers.mjs": [
        (
            "if (!isQuery((q + 0.5) * scaleQ - 0.5)) continue;",
            "if (!isQuery(q * scaleQ)) continue;",
        ),
    ],
    "page/report.py": [
        ("y = 130 - 110 * (mean - low)", "y = 20 + 110 * (mean - low)"),
    ],
    "analysis/images.py": [
        ("y, x = divmod(number, columns)", "x, y = divmod(number, columns)"),
    ],
    "data/tokenizers.py": [
        ("rules = json.loads(cls.rules().to_str())", "rules = content"),
        ("if entries[:2] != [PADDING, UNKNOWN]:", "if False:"),
        ("len(entry) <= longest", "len(entry) <= longest + 1"),
        ("if len(part) <= LONGEST_TOKEN)", "if len(part) < LONGEST_TOKEN)"),
    ],
    "published/folder.py": [
        ("if growth(rules) > MOST_GROWTH:", "if growth(rules[:1]) > MOST_GROWTH:"),
        ("if max(around, default=-1) >= self.size:", "if False:"),
        ("-(-written // replaced) if replaced else 1 + written", "1 + written"),
        ('and type(error).__name__ != "PanicException"', ""),
    ],
    "published/families.py": [
        ("part, default = Config({}, config.path), local", "default = local"),
    ],
    "commands/comparing.py": [
        ("if all(np.array_equal(", "if any(np.array_equal("),
    ],
    "commands/following.py": [
        ("self.rows += trained.rows", "self.rows = trained.rows"),
        (
            'newest = [row[score] for row in self.rows if row["epoch"] == epoch]',
            "newest = [row[score] for row in self.rows[-1:]]",
        ),
    ],
    "explore/graph.py": [
        (
            "self.content += bytes(-len(self.content) % 4)",
            "pass",
        ),
    ],
    "page/controls/settings.mjs": [
        ("Math.abs(q - k) <= reach", "Math.abs(q - k) < reach"),
    ],
    "page/dom.mjs": [
        ("hundredths < 9.95", "hundredths < 10.95"),
        ("value === null || value === undefined ? NaN : Number(value)", "Number(value)"),
    ],
    "page/pictures/evidence.mjs": [
        ("[...new Set([...settings.hidden, ...part])]", "part"),
        ("largest <= NEGLIGIBLE * Math.max", "largest <= Math.max"),
    ],
    "page/pictures/effects.mjs": [
        ("const i = asked[first + j];", "const i = first + j;"),
        ("Math.abs(first[1]) < 1e-3", "Math.abs(first[1]) < 1e-2"),
    ],
    "page/pictures/curves.mjs": [
        ("Math.max(...values) >= 10 * least", "Math.max(...values) >= 100 * least"),
        ("range[0] <= least && range[1] >= most", "range[0] <= least || range[1] >= most"),
    ],
    "page/pictures/heat.mjs": [
        ("q === null ? range(weights.rows) : [q]", "q === null ? [0] : [q]"),
    ],
    "page/pictures/overview.mjs": [
        ("choice.head < held.shape[0]", "choice.head <= held.shape[0]"),
    ],
    "page/views/language.mjs": [
        ("(head * columns + end - 1) * columns", "(head * columns + end) * columns"),
        (
            "const back = reply.tokens.length - 1 - best;",
            "const back = reply.tokens.length - best;",
        ),
    ],
    "page/views/numbers.mjs": [
        ("i < kept ? 4 : 0", "i < kept ? 0 : 4"),
    ],
    "page/views/images.mjs": [
        ("state.q === q ? null : q", "q"),
    ],
    "page/views/series.mjs": [
        ("(value + (t ? own[t - 1] : 0)) / 2", "(value + (t ? own[t - 1] : value)) / 2"),
    ],
    "data/normalization.py": [
        ("np.sqrt(squares / count)", "np.sqrt(squares / (count - 1))"),
    ],
    "kinds/asking.py": [
        ("hidden=(*settings.hidden, *change.hidden)", "hidden=change.hidden"),
    ],
    "kinds/series.py": [
        ('error = float(np.sqrt(run.mean("mse")))', 'error = float(run.mean("mse"))'),
    ],
}
