"""python -m tests.mutations: break the sources one line at a time, and see that the tests named for it fail.

Every mutation is a mistake somebody could make: a sign, a missing π, μ for √μ. The package and its tests are copied to
a temporary folder, one text in one file is replaced, and the tests that must catch it are run there. A mutation is
caught when one of them fails; an import error, an error in a fixture or no test at all is not a catch. First all named
tests are run on an unbroken copy, where they must pass.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIED = ("onlooker", "tests", "pyproject.toml")
# Seconds that the tests of one mutation may take, and those of all of them.
PATIENCE, LONG_PATIENCE = 300, 1800
FAILED = re.compile(r"^FAILED tests/(\S+::[^ \[]+(?:\[.*?\])?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Mutation:
    """A mistake: in which file, what is replaced by what, and the tests (below tests/) that must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


BOX = "test_laws_pools.py::test_single_kernel_learners_have_the_exact_variance_on_an_even_box"
PASSIVE, REWEIGHTED, NAIVE = (f"{BOX}[{name}]" for name in ("passive", "reweighted", "naive"))
CLASSICAL = "test_laws.py::test_classical_has_the_exact_ar1_law_of_a_quadratic_reward"
NONREVERSIBLE = "test_laws_pools.py::test_nonreversible_keeps_the_law_in_two_dimensions_if_its_rotation_is_skew"
ACTIVE = "test_laws_pools.py::test_the_active_learner_s_exact_variance_at_another_bandwidth_than_its_spread"
POOLS = "test_pools.py::test_the_law_of_a_chain_has_the_bandwidth_in_it"
POOLS_ORDER = "test_laws_pools.py::test_the_bias_of_multikernel_is_of_second_order_in_the_bandwidth"
RESET = "test_pools.py::test_the_listings_reset_is_counted_and_makes_no_nan"
CORRECTED = "test_laws_pools.py::test_corrected_has_the_law_without_gradient_noise"
REPLAY = "test_laws_pools.py::test_replay_s_law_is_its_field_s_and_near_the_reward_s"
STEIN = "test_laws_pools.py::test_draws_of_the_fitted_potential_have_its_law_by_stein_s_discrepancy[1]"
COVER = "test_laws_pools.py::test_error_bars_of_the_potential_cover"
BLOCKS = "test_laws_pools.py::test_a_walk_over_many_blocks_repeats_no_noise"
ON_POLICIES = "test_coordinates.py::test_the_law_is_the_one_that_was_asked_for"
MAPS = "test_coordinates.py::test_maps_and_their_derivatives"
UNBIASED = "test_policy_gradient.py::test_two_batches_are_unbiased"

MUTATIONS = (
    # --- inverse learners
    Mutation(
        "classical descends",
        "onlooker/inverse/classical.py",
        "step_size * (beta / 2 * evidence.gradient)",
        "step_size * (-beta / 2 * evidence.gradient)",
        (CLASSICAL,),
    ),
    Mutation(
        "classical without the ½ of β/2",
        "onlooker/inverse/classical.py",
        "step_size * (beta / 2 * evidence.gradient)",
        "step_size * (beta * evidence.gradient)",
        (CLASSICAL,),
    ),
    Mutation(
        "classical injects μ w for √μ w",
        "onlooker/inverse/classical.py",
        "root = math.sqrt(step_size)",
        "root = step_size",
        (CLASSICAL,),
    ),
    Mutation(
        "passive's drift without π",
        "onlooker/inverse/passive.py",
        "evidence.gradient + gradient) * value\n",
        "evidence.gradient + gradient)\n",
        (PASSIVE,),
    ),
    Mutation(
        "passive without ∇π",
        "onlooker/inverse/passive.py",
        "evidence.gradient + gradient) * value\n",
        "evidence.gradient) * value\n",
        ("test_laws.py::test_passive_s_stationary_law",),
    ),
    Mutation(
        "passive descends",
        "onlooker/inverse/passive.py",
        "step_size * (weight * (beta / 2) * evidence.gradient",
        "step_size * (-weight * (beta / 2) * evidence.gradient",
        (PASSIVE,),
    ),
    Mutation(
        "passive's noise without π",
        "onlooker/inverse/passive.py",
        "drift + root * value * noise[0]",
        "drift + root * noise[0]",
        (PASSIVE,),
    ),
    Mutation(
        "passive's second form as the paper prints it",
        "onlooker/inverse/passive.py",
        "spread = root * jnp.sqrt(weight * value)",
        "spread = root * bandwidth ** (position.shape[-1] / 2) * weight * value",
        ("test_laws.py::test_second_form_corrected_and_as_printed",),
    ),
    Mutation(
        "reweighted without 1/π",
        "onlooker/inverse/reweighted.py",
        "ratio = kernel.ratio(displacement, bandwidth, log_prob)",
        "ratio = weight",
        (REWEIGHTED,),
    ),
    Mutation(
        "reweighted without the ½ of β/2",
        "onlooker/inverse/reweighted.py",
        "* (beta / 2) * turn(",
        "* beta * turn(",
        (REWEIGHTED,),
    ),
    Mutation(
        "nonreversible's rotation is not skew",
        "onlooker/inverse/nonreversible.py",
        "matrix = np.eye(len(skew)) + skew",
        "matrix = np.eye(len(skew)) + np.abs(skew) / 3",
        (NONREVERSIBLE,),
    ),
    Mutation(
        "nonreversible turns the other way",
        "onlooker/inverse/nonreversible.py",
        "matrix.T, gradient.dtype",
        "matrix, gradient.dtype",
        ("test_inverse.py::test_update_equals_its_formula[nonreversible]",),
    ),
    Mutation(
        "naive injects √(μ/β) w for √(2μ/β) w",
        "onlooker/inverse/naive.py",
        "math.sqrt(2 * step_size / beta)",
        "math.sqrt(step_size / beta)",
        (NAIVE,),
    ),
    Mutation(
        "kernels without Δ^−N",
        "onlooker/kernels.py",
        " - dim * math.log(bandwidth)",
        "",
        (REWEIGHTED,),
    ),
    Mutation(
        "the fourth-order kernel's wide part not normalised",
        "onlooker/kernels.py",
        " * 2 ** (-dim / 2)",
        "",
        ("test_kernels.py::test_normalised_and_of_its_order",),
    ),
    Mutation(
        "multikernel's weights do not sum to one",
        "onlooker/field/kernel_regression.py",
        "Neighbours(weight / total,",
        "Neighbours(weight,",
        (POOLS,),
    ),
    Mutation(
        "multikernel without the ½ of β/2",
        "onlooker/inverse/multikernel.py",
        "step_size * (beta / 2 * gradient)",
        "step_size * (beta * gradient)",
        (POOLS,),
    ),
    Mutation(
        "multikernel's kernel has the variance σ for σ²",
        "onlooker/field/kernel_regression.py",
        "scaled = squared / bandwidth**2",
        "scaled = squared / bandwidth",
        (POOLS_ORDER,),
    ),
    Mutation(
        "the reset rule turned round",
        "onlooker/inverse/multikernel.py",
        "again = pool.log_total < reset.below",
        "again = pool.log_total > reset.below",
        (RESET,),
    ),
    Mutation(
        "a reset that stays where it was",
        "onlooker/inverse/multikernel.py",
        "reset.spread * noise[1], position)",
        "position + reset.spread * noise[1], position)",
        (RESET,),
    ),
    Mutation(
        "active without its weights K/p",
        "onlooker/inverse/active.py",
        "step_size * (ratio * (beta / 2)",
        "step_size * ((beta / 2)",
        (ACTIVE,),
    ),
    Mutation(
        "active asks where it stands",
        "onlooker/inverse/active.py",
        "return position + spread * noise[1]",
        "return position",
        (ACTIVE,),
    ),
    Mutation(
        "active asks along the noise it injects",
        "onlooker/inverse/active.py",
        "return position + spread * noise[1]",
        "return position + spread * noise[0]",
        ("test_active.py::test_it_is_answered_nearby_and_weighs_the_answer",),
    ),
    Mutation(
        "projection on a ball of another radius",
        "onlooker/inverse/confine.py",
        "moved * (radius / norm)",
        "moved / norm",
        ("test_inverse.py::test_every_learner_can_be_projected_on_a_ball_and_says_so[classical]",),
    ),
    Mutation(
        "reflection at the upper end goes to the lower one",
        "onlooker/inverse/confine.py",
        "folded = high - jnp.abs(",
        "folded = low + jnp.abs(",
        ("test_coordinates.py::test_reflection_at_both_ends",),
    ),
    Mutation(
        "noise corrected with the wrong sign",
        "onlooker/inverse/correct.py",
        "np.eye(relative.shape[-1]) - relative",
        "np.eye(relative.shape[-1]) + relative",
        (CORRECTED,),
    ),
    Mutation(
        "noise correction that injects nothing",
        "onlooker/inverse/correct.py",
        "    roots = np.sqrt(np.maximum(values, LEAST_SHARE))",
        "    roots = 0 * np.sqrt(np.maximum(values, LEAST_SHARE))",
        (CORRECTED,),
    ),
    Mutation(
        "a stream that reads the caller's own memory",
        "onlooker/observe/stream.py",
        "copies = (np.array(part, dtype) for",
        "copies = (jax.device_put(np.asarray(part, dtype)) for",
        ("test_checks.py::test_every_inverse_learner_holds_to_them[passive]",),
    ),
    Mutation(
        "a resumed run that remembers how far it got and nothing else",
        "onlooker/resume.py",
        "return int(array) if isinstance(like, int) else array",
        "return int(array) if isinstance(like, int) else 0 * array",
        ("test_resume.py::test_killed_at_any_moment_it_goes_on",),
    ),
    Mutation(
        "a run known by its printed program without its constants",
        "onlooker/resume.py",
        "[*_constants(program), *jax.tree.leaves",
        "[*jax.tree.leaves",
        ("test_resume.py::test_another_world_is_another_run",),
    ),
    Mutation(
        "a run's file that does not know its seed and start",
        "onlooker/resume.py",
        "jax.tree.leaves((stream.data, begun))",
        "jax.tree.leaves(stream.data)",
        ("test_resume.py::test_another_run_s_file_is_refused_and_left_alone",),
    ),
    Mutation(
        "a confined chain in the GPU's kernel",
        "onlooker/fused.py",
        "max(depths.values()) < 2",
        "max(depths.values()) < 9",
        ("test_fused.py::test_what_does_not_suit_is_left_to_the_plain_loop",),
    ),
    Mutation(
        "noise correction blind to autocorrelation",
        "onlooker/inverse/correct.py",
        ".reshape(-1, batch, dim).sum(axis=1)",
        ".reshape(-1, batch, dim).sum(axis=1) / batch**0.5",
        ("test_correct.py::test_autocorrelation_counts",),
    ),
    Mutation(
        "on_policies without the Jacobian's drift",
        "onlooker/inverse/simplex.py",
        "moved = moved + step_size * jnp.clip(",
        "moved = moved + 0 * jnp.clip(",
        (f"{ON_POLICIES}[policies by angles]",),
    ),
    Mutation(
        "the Jacobian's drift without its ½",
        "onlooker/coordinates.py",
        "return sign * (cotangent(2 * angles)",
        "return 2 * sign * (cotangent(2 * angles)",
        (MAPS,),
    ),
    Mutation(
        "a sign in the Jacobian of angles",
        "onlooker/coordinates.py",
        "factors.append(-double[..., u]",
        "factors.append(double[..., u]",
        (MAPS,),
    ),
    Mutation(
        "replay without the ½ of β/2",
        "onlooker/inverse/replay.py",
        "step_size * (beta / 2 * slope",
        "step_size * (beta * slope",
        (REPLAY,),
    ),
    Mutation(
        "replay's wall pushes outward",
        "onlooker/inverse/replay.py",
        "slope - pull / 2)",
        "slope + pull / 2)",
        ("test_replay.py::test_a_step_is_its_formula",),
    ),
    # --- the field
    Mutation(
        "a local line's intercept is the mean",
        "onlooker/field/kernel_regression.py",
        "return mean - middle @ slope",
        "return mean",
        ("test_replay.py::test_a_line_is_found_wherever_the_points_lie",),
    ),
    Mutation(
        "on cells the local line is followed the wrong way",
        "onlooker/field/binned.py",
        'return mean - jnp.einsum("...i,...ij->...j"',
        'return mean + jnp.einsum("...i,...ij->...j"',
        ("test_replay.py::test_the_field_on_cells_is_the_gradient",),
    ),
    Mutation(
        "fourth-order weights with a plus",
        "onlooker/field/kernel_regression.py",
        "signed = 2 * weight - 2 **",
        "signed = 2 * weight + 2 **",
        ("test_replay.py::test_orders",),
    ),
    Mutation(
        "a ring that keeps the first rows",
        "onlooker/field/memory.py",
        "lambda number, seen: number % size)",
        "lambda number, seen: number)",
        ("test_memory.py::test_a_ring_holds_the_last",),
    ),
    Mutation(
        "cells that forget nothing",
        "onlooker/field/memory.py",
        "older = (1 - forgetting) ** count.astype(jnp.float32)",
        "older = 1.0",
        ("test_memory.py::test_bins_forget_row_by_row",),
    ),
    # --- the potential
    Mutation(
        "a quadratic with a curl",
        "onlooker/field/quadratic.py",
        "(across + across.T)",
        "(2 * across)",
        ("test_field.py::test_a_quadratic_is_recovered_and_its_curvature_is_symmetric",),
    ),
    Mutation(
        "the worst penalty instead of the best",
        "onlooker/field/quadratic.py",
        "error < best[0]",
        "error > best[0]",
        ("test_field.py::test_a_quadratic_is_recovered_and_its_curvature_is_symmetric",),
    ),
    Mutation(
        "a sign in the cosines' normal matrix",
        "onlooker/field/cosine.py",
        "sign = -1 if axis == sloped else 1",
        "sign = 1",
        ("test_field.py::test_the_normal_matrix_is_read_off_the_sums[2]",),
    ),
    Mutation(
        "cosines without a prior",
        "onlooker/field/cosine.py",
        "precision = _noise(sums) / scale * _penalty(sums.box, sums.order, length, kernel)\n",
        "precision = 1e-9 * _penalty(sums.box, sums.order, length, kernel)\n",
        ("test_field.py::test_a_lucky_split_does_not_choose_the_prior",),
    ),
    Mutation(
        "the prior chosen by held-out luck alone",
        "onlooker/field/cosine.py",
        "key=lambda one: (0, -one.evidence) if by_chance(one) else (1, one.error))",
        "key=lambda one: (by_chance(one) and 0, one.error))",
        ("test_field.py::test_a_lucky_split_does_not_choose_the_prior",),
    ),
    Mutation(
        "error bars too narrow by two",
        "onlooker/field/cosine.py",
        "np.sqrt(self.noise * np.einsum(",
        "0.5 * np.sqrt(self.noise * np.einsum(",
        (COVER,),
    ),
    Mutation(
        "error bars too wide by two",
        "onlooker/field/cosine.py",
        "np.sqrt(self.noise * np.einsum(",
        "2 * np.sqrt(self.noise * np.einsum(",
        (COVER,),
    ),
    Mutation(
        "error bars that take the quadratic for granted",
        "onlooker/field/smooth.py",
        "np.sqrt(np.maximum(learnt, self.trend.error_squared(inside, typical)))",
        "np.sqrt(learnt)",
        ("test_field.py::test_error_bars_know_that_the_quadratic_is_fitted_too",),
    ),
    Mutation(
        "∇R̂ in units of the spread",
        "onlooker/field/smooth.py",
        "self.unit * self.cosines.gradient(inside)) / self.spread",
        "self.unit * self.cosines.gradient(inside))",
        (STEIN,),
    ),
    Mutation(
        "draws of exp(R̂) for exp(βR̂)",
        "onlooker/field/smooth.py",
        "return beta * self._value(inside) - excess",
        "return self._value(inside) - excess",
        (STEIN,),
    ),
    Mutation(
        "no wall outside the data",
        "onlooker/field/smooth.py",
        "self._value(inside) - excess - 2 * excess**2",
        "self._value(inside)",
        ("test_field.py::test_outside_the_data_there_is_a_wall",),
    ),
    Mutation(
        "cells of all sizes weigh alike",
        "onlooker/field/cells.py",
        " + np.log(widths / (high - low)).sum(axis=1)",
        "",
        ("test_field.py::test_cells_follow_a_ridge_that_is_thinner_than_they_are",),
    ),
    Mutation(
        "rows held out instead of agents",
        "onlooker/observe/quality.py",
        "chosen = _taken(agents, seed)",
        "chosen = _taken(np.arange(len(agents)), seed)",
        ("test_quality.py::test_whole_agents_are_held_out",),
    ),
    # --- forgetting and jumps
    Mutation(
        "an Observer that forgets nothing",
        "onlooker/observer.py",
        "self._sums.forget(1 - left[0])",
        "self._sums.forget(0.0)",
        ("test_observer.py::test_it_forgets_when_told_to",),
    ),
    Mutation(
        "an Observer that keeps what was before a jump",
        "onlooker/observer.py",
        "self._since = self._taken - jumps[-1].at",
        "self._since = self._taken",
        ("test_observer.py::test_it_forgets_by_itself_when_the_reward_jumps",),
    ),
    Mutation(
        "a jump's threshold for a hundred times the false alarms",
        "onlooker/observe/jumps.py",
        "chance = min(unit * false_alarms / len(windows), 0.5)",
        "chance = min(100 * unit * false_alarms / len(windows), 0.5)",
        ("test_jumps.py::test_false_alarms_are_as_rare_as_asked",),
    ),
    Mutation(
        "a jump's statistic that takes the mean before for known",
        "onlooker/observe/jumps.py",
        "divisors = windows * (1 + windows / count) *",
        "divisors = windows *",
        ("test_jumps.py::test_the_statistic_is_hotelling_s",),
    ),
    Mutation(
        "residuals with a plus",
        "onlooker/jump_watch.py",
        "residuals = gradients - self._expected.gradient(points)",
        "residuals = gradients + self._expected.gradient(points)",
        ("test_jumps.py::test_a_change_of_slope_or_curvature_is_found_and_placed",),
    ),
    # --- what is seen
    Mutation(
        "gradients read across agents",
        "onlooker/observe/iterates.py",
        "follows = owner[here] == owner[after]\n",
        "follows = np.ones(len(here), bool)\n",
        ("test_observe.py::test_never_across_a_restart_and_in_the_order_seen",),
    ),
    Mutation(
        "iterates read downhill",
        "onlooker/observe/iterates.py",
        "steps = (points[after] - points[here])",
        "steps = (points[here] - points[after])",
        ("test_observe.py::test_gradients_from_iterates_point_uphill",),
    ),
    Mutation(
        "iterates' steps not divided by ε",
        "onlooker/observe/iterates.py",
        "steps /= np.broadcast_to",
        "steps *= np.broadcast_to",
        ("test_observe.py::test_gradients_from_iterates_point_uphill",),
    ),
    Mutation(
        "a loss's gradients not turned",
        "onlooker/observe/observation.py",
        "gradient_rows = -gradient_rows",
        "gradient_rows = +gradient_rows",
        ("test_observe.py::test_losses_are_turned_into_rewards_but_iterates_are_not",),
    ),
    Mutation(
        "gradients that are NaN taken in",
        "onlooker/observe/observation.py",
        " & np.isfinite(gradient_rows).all(axis=1)",
        "",
        ("test_observe.py::test_what_is_not_finite_is_counted_and_refused",),
    ),
    Mutation(
        "shards read from the last to the first",
        "onlooker/observe/log.py",
        'return sorted(path for path in folder.iterdir() if path.suffix == ".parquet"'
        ' and not path.name.startswith("."))',
        'return sorted((one for one in folder.iterdir() if one.suffix == ".parquet"), reverse=True)',
        ("test_log.py::test_what_is_written_is_read",),
    ),
    Mutation(
        "torn shards passed over in silence",
        "onlooker/observe/log.py",
        "self.torn.add(shard.name)",
        "pass",
        ("test_log.py::test_a_torn_shard_is_skipped_and_counted",),
    ),
    Mutation(
        "a log's direction not minded",
        "onlooker/observe/log.py",
        "rows._replace(gradients=-rows.gradients)",
        "rows._replace(gradients=rows.gradients)",
        ("test_log.py::test_a_loss_s_gradients_are_turned_by_their_schema_and_a_wrong_sign_is_noticed",),
    ),
    Mutation(
        "rows that wait lost in a checkpoint",
        "onlooker/observer.py",
        "content = packed(pack(self))",
        'content = packed({name: part for name, part in pack(self).items() if "_waiting" not in name})',
        ("test_checkpoint.py::test_loaded_it_goes_on_to_the_last_bit[2-None]",),
    ),
    Mutation(
        "a damaged checkpoint believed",
        "onlooker/checkpoint.py",
        'b"\\n" + arrays).digest() != digest:',
        'b"\\n" + arrays).digest() == b"":',
        ("test_checkpoint.py::test_what_is_no_checkpoint_is_refused",),
    ),
    # --- what is counted
    Mutation(
        "counts in float32, which stop at 2²⁴",
        "onlooker/reward/accumulate.py",
        "return np.int32 if forgetting is None else np.float32",
        "return np.float32",
        ("test_accumulate.py::test_counts_go_on_beyond_what_float32_can_count",),
    ),
    Mutation(
        "a histogram whose past does not fade",
        "onlooker/reward/accumulate.py",
        "return counts * faded + ",
        "return counts + ",
        ("test_accumulate.py::test_what_was_counted_fades_by_every_step_since",),
    ),
    Mutation(
        "R̂ = log p̂ without 1/β",
        "onlooker/reward/estimate.py",
        "return (logarithm - top) / self.beta",
        "return logarithm - top",
        ("test_accumulate.py::test_reward_is_the_logarithm_and_nan_where_nothing_was_seen",),
    ),
    Mutation(
        "total variation without its ½",
        "onlooker/reward/distances.py",
        "return 0.5 * float(np.abs(one",
        "return float(np.abs(one",
        ("test_accumulate.py::test_coarser_bins_and_distances",),
    ),
    Mutation(
        "W1 of the bins' centres by their numbers",
        "onlooker/reward/distances.py",
        "(edges[1:] + edges[:-1]) / 2, edges[-1:]",
        "np.arange(len(edges) - 1.0), edges[-1:]",
        ("test_accumulate.py::test_coarser_bins_and_distances",),
    ),
    Mutation(
        "rhat without ranks",
        "onlooker/reward/diagnostics.py",
        'draw_axis=1, method="rank")',
        'draw_axis=1, method="split")',
        ("test_diagnostics.py::test_rhat_knows_frozen_chains_from_moving_ones",),
    ),
    # --- randomness and the engine
    Mutation(
        "the same noise in every block",
        "onlooker/engine.py",
        "jax.random.fold_in(state.key, state.block)",
        "jax.random.fold_in(state.key, 0)",
        (BLOCKS,),
    ),
    Mutation(
        "both words of Threefry the same",
        "onlooker/noise.py",
        "lax.iota(jnp.uint32, math.prod(shape))).reshape(shape)",
        "lax.iota(jnp.uint32, math.prod(shape)))[lax.iota(int, math.prod(shape)) // 2].reshape(shape)",
        ("test_run.py::test_noise_is_standard_normal_and_coins_are_fair",),
    ),
    Mutation(
        "the same noise in both halves of a block",
        "onlooker/noise.py",
        "lax.iota(jnp.uint32, math.prod(shape))).reshape(shape)",
        "lax.iota(jnp.uint32, math.prod(shape)))[lax.iota(int, math.prod(shape)) % -(-math.prod(shape) // 2)]"
        ".reshape(shape)",
        (BLOCKS,),
    ),
    Mutation(
        "one uniform number for two",
        "onlooker/noise.py",
        "_uniform(threefry_2x32(jax.random.key_data(key), counter))",
        "_uniform(threefry_2x32(jax.random.key_data(key), counter))[:1].repeat(2)",
        (UNBIASED,),
    ),
    Mutation(
        "burn-in counted",
        "onlooker/engine.py",
        "(taken <= steps) & (first_step + taken > plan.burn_in)",
        "taken <= steps",
        ("test_run.py::test_burn_in_is_not_counted_and_thin_counts_one_in_so_many",),
    ),
    Mutation(
        "a thinned run that counts every recorded row as one step",
        "onlooker/engine.py",
        "jnp.arange(1, recorded.shape[1] + 1) * plan.thin",
        "jnp.arange(1, recorded.shape[1] + 1)",
        ("test_run.py::test_burn_in_is_not_counted_and_thin_counts_one_in_so_many",),
    ),
    Mutation(
        "a memory updated twice with every block",
        "onlooker/engine.py",
        "memory = plan.update(memory, evidence, steps)",
        "memory = plan.update(plan.update(memory, evidence, steps), evidence, steps)",
        ("test_run.py::test_a_memory_is_updated_once_for_all_chains",),
    ),
    # --- the world
    Mutation(
        "a stationary law without its division",
        "onlooker/learners/cmdp.py",
        "share = chain[..., :last, last] / away.sum(-1)[..., None]",
        "share = chain[..., :last, last]",
        ("test_cmdp.py::test_values_are_those_of_the_stationary_law",),
    ),
    Mutation(
        "costs kept above their limits",
        "onlooker/learners/cmdp.py",
        "kept = self.cost.reshape(-1, states * actions)",
        "kept = -self.cost.reshape(-1, states * actions)",
        ("test_cmdp.py::test_the_paper_s_example_has_its_optimum",),
    ),
    Mutation(
        "the penalty B² − limit",
        "onlooker/learners/cmdp.py",
        "excess = values[..., 1:] - self.limit.astype(values.dtype)",
        "excess = (abs(values[..., 1:] ** 2 - self.limit.astype(values.dtype))) ** 0.5",
        ("test_cmdp.py::test_the_penalty_is_on_the_square_of_the_excess",),
    ),
    Mutation(
        "Poisson's equation left out of ∂J/∂φ",
        "onlooker/learners/cmdp.py",
        "(self.payoffs + ahead)",
        "(self.payoffs + 0 * ahead)",
        ("test_cmdp.py::test_gradients_are_derivatives_along_policies",),
    ),
    Mutation(
        "a batch's baseline is its own value",
        "onlooker/learners/policy_gradient.py",
        "both.value[::-1, :, None]",
        "both.value[:, :, None]",
        ("test_policy_gradient.py::test_no_batch_is_its_own_baseline",),
    ),
    Mutation(
        "the penalty's gradient from one batch at a time",
        "onlooker/learners/policy_gradient.py",
        "excess[0] @ slopes[1, 1:] + excess[1] @ slopes[0, 1:]",
        "excess[0] @ slopes[0, 1:] + excess[1] @ slopes[1, 1:]",
        (UNBIASED,),
    ),
    Mutation(
        "regimes jump by the transposed generator",
        "onlooker/learners/switching.py",
        "self.rate * self.generator, others",
        "self.rate * self.generator.T, others",
        ("test_switching.py::test_regimes_follow_the_generator",),
    ),
    # --- the oracles
    Mutation(
        "Fokker–Planck with the drift turned",
        "onlooker/truth/fokker_planck.py",
        "peclet = step * (pull[here] + pull[next_])",
        "peclet = -step * (pull[here] + pull[next_])",
        ("test_truth.py::test_fokker_planck_in_time_is_ornstein_uhlenbeck_s",),
    ),
    Mutation(
        "Fokker–Planck without the cross term's sign",
        "onlooker/truth/fokker_planck.py",
        "right[lower], -rate[side][upper])",
        "right[lower], rate[side][upper])",
        ("test_truth.py::test_fokker_planck_finds_a_correlated_gaussian",),
    ),
    Mutation(
        "the averaged diffusion with β/2 for β²/4",
        "onlooker/truth/averaged.py",
        "unit + step_size * beta**2 / 4 * noise / pi",
        "unit + step_size * beta / 2 * noise / pi",
        ("test_laws_pools.py::test_the_averaged_diffusion_has_the_exact_variance_to_first_order[reweighted-0.015]",),
    ),
    Mutation(
        "regimes coupled by the transposed generator",
        "onlooker/truth/switched.py",
        "np.asarray(rates, float).T)",
        "np.asarray(rates, float))",
        ("test_switched.py::test_the_mean_of_the_switching_law_solves_its_equation",),
    ),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation: which test failed, or why that is no catch; and the seconds it took."""

    mutation: str
    file: str
    caught_by: str | None
    reason: str
    seconds: float


def copied(place: Path, origin: Path = ROOT) -> Path:
    """The package and its tests in a folder of their own; what was compiled stays valid, as times are kept."""
    for name in COPIED:
        source, target = origin / name, place / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    return place


def environment(place: Path) -> dict[str, str]:
    """The copy comes first among what is imported."""
    settings = {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", **settings}


def pytest_in(place: Path, tests: Sequence[str], patience: float, *options: str) -> tuple[int, str]:
    """The exit code of the tests, run in a copy, and what they printed; −1 when they took too long."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rf", "--tb=line", "-p", "no:cacheprovider", *options]
    ids = [f"tests/{test}" for test in tests]
    try:
        done = subprocess.run(
            [*command, *ids], cwd=place, env=environment(place), capture_output=True, text=True, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return -1, f"not finished after {patience:g} s"
    return done.returncode, done.stdout + done.stderr


def tried(mutation: Mutation, origin: Path = ROOT) -> Outcome:
    """Break a copy, and run the tests that must notice."""
    with tempfile.TemporaryDirectory() as folder:
        place = copied(Path(folder), origin)
        broken = place / mutation.file
        broken.write_text(broken.read_text().replace(mutation.old, mutation.new))
        began = time.perf_counter()
        code, said = pytest_in(place, mutation.tests, PATIENCE)
        seconds = time.perf_counter() - began
    failed = FAILED.search(said)
    if code == 1 and failed is not None:
        return Outcome(mutation.name, mutation.file, failed[1], "", seconds)
    reason = "it survived" if code == 0 else f"pytest ended with {code}: {said.strip()[-300:]}"
    return Outcome(mutation.name, mutation.file, None, reason, seconds)


def unbroken(place: Path, tests: Sequence[str], jobs: int) -> str:
    """What is wrong with a copy before anything was broken; nothing, if all is well."""
    found = subprocess.run(
        [sys.executable, "-c", "import onlooker; print(onlooker.__file__)"],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
    ).stdout.strip()
    if not found or Path(found).resolve() != (place / "onlooker" / "__init__.py").resolve():
        return f"the copy is not what is imported, but {found or 'nothing'}."
    code, said = pytest_in(place, tests, LONG_PATIENCE, "-n", str(jobs))
    return "" if code == 0 else f"the unbroken tests do not pass (pytest ended with {code}):\n{said[-3000:]}"


def table(outcomes: Sequence[Outcome]) -> list[str]:
    rows = ["| mutation | file | caught by | seconds |", "|---|---|---|---|"]
    for one in outcomes:
        catch = f"`{one.caught_by}`" if one.caught_by else f"**nothing**: {one.reason.splitlines()[0]}"
        rows.append(f"| {one.mutation} | `{one.file}` | {catch.replace('|', chr(92) + '|')} | {one.seconds:.0f} |")
    return rows


def page(outcomes: Sequence[Outcome]) -> str:
    """The docs page, in Markdown."""
    caught = sum(one.caught_by is not None for one in outcomes)
    introduction = [
        "# Mutations",
        "",
        "A test that cannot fail tests nothing. `make mutations` breaks the sources, one text at a time, each by a",
        "mistake that somebody could make, and runs the tests that must notice it: a mutation is caught when one of",
        "them fails. An import error is no catch, and all of these tests pass on the unbroken sources, which is",
        "checked first. The list is `tests/mutations.py`; this page was written by",
        "`python -m tests.mutations --json PATH --page docs/mutations.md`, which joins the results of a list that was",
        "run in parts (`--only`).",
        "",
        f"{caught} of {len(outcomes)} mutations were caught. Seconds include Python's start, two mutations at a time.",
        "",
    ]
    return "\n".join([*introduction, *table(outcomes), ""])


def joined(path: Path, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """With those of mutations that were left out this time, as a file has them, in the order of the list."""
    earlier = [Outcome(**one) for one in json.loads(path.read_text())] if path.exists() else []
    found = {one.mutation: one for one in (*earlier, *outcomes)}
    return [found[mutation.name] for mutation in MUTATIONS if mutation.name in found]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="TEXT", help="those with this, or this, in name or file")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help="write the results there, beside those of mutations left out by --only",
    )
    parser.add_argument("--page", type=Path, metavar="PATH", help="write the docs page there")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="how many at a time (2)")
    options = parser.parse_args()
    wanted = options.only or [""]
    chosen = [one for one in MUTATIONS if any(text in one.name or text in one.file for text in wanted)]
    if not chosen:
        parser.error(f"no mutation has {' or '.join(wanted)} in its name or file.")
    outcomes: list[Outcome] = []
    # All are broken copies of one state of the sources, which may be edited meanwhile.
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        origin = copied(Path(folder))
        if wrong := unbroken(origin, sorted({test for one in chosen for test in one.tests}), options.jobs):
            print(wrong)
            return 1
        for number, outcome in enumerate(pool.map(partial(tried, origin=origin), chosen), 1):
            outcomes.append(outcome)
            found = outcome.caught_by or outcome.reason
            print(f"{number:3d} of {len(chosen)}: {outcome.mutation}: {found}", flush=True)
    if options.json:
        outcomes = joined(options.json, outcomes)
        options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1, ensure_ascii=False) + "\n")
    caught = sum(one.caught_by is not None for one in outcomes)
    print("", *table(outcomes), "", f"{caught} of {len(outcomes)} caught", sep="\n")
    if options.page:
        options.page.write_text(page(outcomes))
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
