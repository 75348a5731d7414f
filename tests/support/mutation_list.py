"""Plausible mistakes, each with the tests that must catch it; tests/support/mutations.py tries them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """A mistake in the sources.

    Attributes
    ----------
    name
        What is wrong with the mutated source.
    file
        The file.
    old
        The text that is replaced.
    new
        Its replacement.
    tests
        Tests, below tests/, of which one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


BOX = "inverse/test_laws_pools.py::test_single_kernel_learners_have_the_exact_variance_on_an_even_box"
PASSIVE, REWEIGHTED, NAIVE = (f"{BOX}[{name}]" for name in ("passive", "reweighted", "naive"))
CLASSICAL = "inverse/test_laws.py::test_classical_has_the_exact_ar1_law_of_a_quadratic_reward"
NONREVERSIBLE = "inverse/test_laws_pools.py::test_nonreversible_keeps_the_law_in_two_dimensions_if_its_rotation_is_skew"
ACTIVE = "inverse/test_laws_pools.py::test_the_active_learner_s_exact_variance_at_another_bandwidth_than_its_spread"
POOLS = "inverse/test_pools.py::test_stationary_law_of_multikernel_depends_on_the_bandwidth"
POOLS_ORDER = "inverse/test_laws_pools.py::test_the_bias_of_multikernel_is_of_second_order_in_the_bandwidth"
RESET = "inverse/test_pools.py::test_the_listings_reset_is_counted_and_makes_no_nan"
CORRECTED = "inverse/test_laws_pools.py::test_corrected_has_the_law_without_gradient_noise"
REPLAY = "inverse/test_laws_pools.py::test_replay_s_law_is_its_field_s_and_near_the_reward_s"
STEIN = "inverse/test_laws_pools.py::test_draws_of_the_fitted_potential_have_its_law_by_stein_s_discrepancy[1]"
COVER = "inverse/test_laws_pools.py::test_error_bars_of_the_potential_cover"
BLOCKS = "inverse/test_laws_pools.py::test_a_walk_over_many_blocks_repeats_no_noise"
ON_POLICIES = "core/test_policies.py::test_samples_have_the_law_of_the_chosen_measure"
MAPS = "core/test_policies.py::test_maps_and_their_derivatives"
NEW_FIT = "fit/test_potential.py::test_a_new_fit_serves_every_caller"
JOINED = "fit/test_potential.py::test_every_fit_passes_the_suite[2]"
JOINED_ROWS = "fit/test_potential.py::test_kept_rows_are_joined_and_faded"
UNBIASED = "simulation/test_policy_gradient.py::test_two_batches_are_unbiased"

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
        ("inverse/test_laws.py::test_passive_s_stationary_law",),
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
        "return root * jnp.sqrt(weight * value)",
        "return root * bandwidth ** (dim / 2) * weight * value",
        ("inverse/test_laws.py::test_second_form_corrected_and_as_printed",),
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
        ("inverse/test_inverse.py::test_update_equals_its_formula[nonreversible]",),
    ),
    Mutation(
        "naive injects √(μ/β) w for √(2μ/β) w",
        "onlooker/paper/naive.py",
        "math.sqrt(2 * step_size / beta)",
        "math.sqrt(step_size / beta)",
        (NAIVE,),
    ),
    Mutation(
        "kernels without Δ^−N",
        "onlooker/core/kernels.py",
        " - dim * math.log(bandwidth)",
        "",
        (REWEIGHTED,),
    ),
    Mutation(
        "the fourth-order kernel's wide part not normalised",
        "onlooker/core/kernels.py",
        " * 2 ** (-dim / 2)",
        "",
        ("core/test_kernels.py::test_kernels_are_normalised_and_have_their_order",),
    ),
    Mutation(
        "multikernel's weights do not sum to one",
        "onlooker/fit/kernel_regression.py",
        "precision=PRECISION) / self.total",
        "precision=PRECISION)",
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
        "onlooker/fit/kernel_regression.py",
        "scaled = squared / bandwidth**2",
        "scaled = squared / bandwidth",
        (POOLS_ORDER,),
    ),
    Mutation(
        "the reset rule turned round",
        "onlooker/paper/listing.py",
        "again = pool.log_total < reset.below",
        "again = pool.log_total > reset.below",
        (RESET,),
    ),
    Mutation(
        "a reset that stays where it was",
        "onlooker/paper/listing.py",
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
        ("inverse/test_active.py::test_the_answer_near_the_position_is_weighted",),
    ),
    Mutation(
        "projection on a ball of another radius",
        "onlooker/inverse/confine.py",
        "moved * (radius / norm)",
        "moved / norm",
        ("inverse/test_inverse.py::test_every_learner_can_be_projected_on_a_ball_and_counts_it[classical]",),
    ),
    Mutation(
        "reflection at the upper end goes to the lower one",
        "onlooker/inverse/confine.py",
        "folded = high - jnp.abs(",
        "folded = low + jnp.abs(",
        ("core/test_policies.py::test_reflection_at_both_ends",),
    ),
    Mutation(
        "noise corrected with the wrong sign",
        "onlooker/inverse/noise_correction.py",
        "np.eye(relative.shape[-1]) - relative",
        "np.eye(relative.shape[-1]) + relative",
        (CORRECTED,),
    ),
    Mutation(
        "noise correction that injects nothing",
        "onlooker/inverse/noise_correction.py",
        "    roots = np.sqrt(np.maximum(values, LEAST_SHARE))",
        "    roots = 0 * np.sqrt(np.maximum(values, LEAST_SHARE))",
        (CORRECTED,),
    ),
    Mutation(
        "a stream that reads the caller's own memory",
        "onlooker/data/stream.py",
        "copies = (np.array(part, dtype) for",
        "copies = (jax.device_put(np.asarray(part, dtype)) for",
        ("test_testing.py::test_every_inverse_learner_passes_the_suite[passive]",),
    ),
    Mutation(
        "a resumed run that remembers how far it got and nothing else",
        "onlooker/engine/checkpoint.py",
        "return int(array) if isinstance(like, int) else array",
        "return int(array) if isinstance(like, int) else 0 * array",
        ("engine/test_checkpoint.py::test_killed_at_any_moment_it_goes_on",),
    ),
    Mutation(
        "a run known by its printed program without its constants",
        "onlooker/engine/identity.py",
        "_digest([*_constants(traced), *jax.tree.leaves(begun)], printed)",
        "_digest(jax.tree.leaves(begun), printed)",
        ("engine/test_checkpoint.py::test_another_world_is_another_run",),
    ),
    Mutation(
        "a run's file that does not know its data",
        "onlooker/engine/identity.py",
        '"data": stream.digest,',
        '"data": "",',
        ("engine/test_checkpoint.py::test_after_an_upgrade_of_jax_a_run_goes_on_with_a_warning",),
    ),
    Mutation(
        "a run's file that does not know its seed",
        "onlooker/engine/identity.py",
        '"seed": settings.seed,',
        '"seed": 0,',
        ("engine/test_checkpoint.py::test_after_an_upgrade_of_jax_a_run_goes_on_with_a_warning",),
    ),
    Mutation(
        "an upgrade of JAX that orphans every checkpoint",
        "onlooker/engine/identity.py",
        "if changed and versions == self.versions and not differing:",
        "if changed and not differing:",
        ("engine/test_checkpoint.py::test_after_an_upgrade_of_jax_a_run_goes_on_with_a_warning",),
    ),
    Mutation(
        "other functions of one version taken for an upgrade",
        "onlooker/engine/identity.py",
        "if changed and versions == self.versions and not differing:",
        "if False:",
        ("engine/test_checkpoint.py::test_the_checkpoint_of_another_run_is_rejected_and_kept",),
    ),
    Mutation(
        "a learner of pools that is shown single observations",
        "onlooker/engine/settings.py",
        'if learner.evidence == "pool" and stream.pool is None:',
        "if False:",
        ("inverse/test_pools.py::test_streams_that_cannot_be_pooled_are_rejected",),
    ),
    Mutation(
        "a learner without test cases that nobody misses",
        "onlooker/engine/conformance.py",
        'require(hasattr(home, "examples"),',
        'require(True or hasattr(home, "examples"),',
        ("test_testing.py::test_no_inverse_learner_is_left_out",),
    ),
    Mutation(
        "sums of reports in place of sums of their squares",
        "onlooker/engine/loop.py",
        "squared = [getattr(info, name) * getattr(info, name) for name in plan.squares]",
        "squared = [getattr(info, name) for name in plan.squares]",
        ("engine/test_diagnostics.py::test_a_learner_s_own_report_becomes_diagnostics_and_warnings",),
    ),
    Mutation(
        "a policies' term added to noise that is not plain",
        "onlooker/inverse/on_policies.py",
        "not learner.plain_noise",
        "False",
        ("core/test_policies.py::test_unsuitable_coordinates_and_measures_are_rejected",),
    ),
    Mutation(
        "a confined chain in the GPU's kernel",
        "onlooker/engine/fused.py",
        "max(depths.values()) < 2",
        "max(depths.values()) < 9",
        ("engine/test_fused.py::test_unsuitable_plans_use_the_plain_loop",),
    ),
    Mutation(
        "noise correction blind to autocorrelation",
        "onlooker/inverse/noise_correction.py",
        ".reshape(-1, batch, dim).sum(axis=1)",
        ".reshape(-1, batch, dim).sum(axis=1) / batch**0.5",
        ("inverse/test_noise_correction.py::test_autocorrelation_counts",),
    ),
    Mutation(
        "on_policies without the Jacobian's drift",
        "onlooker/inverse/on_policies.py",
        "moved = moved + step_size * jnp.clip(",
        "moved = moved + 0 * jnp.clip(",
        (f"{ON_POLICIES}[policies by angles]",),
    ),
    Mutation(
        "the Jacobian's drift without its ½",
        "onlooker/core/policies.py",
        "return sign * (cotangent(2 * angles)",
        "return 2 * sign * (cotangent(2 * angles)",
        (MAPS,),
    ),
    Mutation(
        "a sign in the Jacobian of angles",
        "onlooker/core/policies.py",
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
        ("inverse/test_replay.py::test_a_replay_step_equals_its_formula",),
    ),
    # --- the field
    Mutation(
        "a local line's intercept is the mean",
        "onlooker/fit/kernel_regression.py",
        "return mean - middle @ slope",
        "return mean",
        ("inverse/test_replay.py::test_local_linear_regression_recovers_a_linear_field",),
    ),
    Mutation(
        "on cells the local line is followed the wrong way",
        "onlooker/fit/binned_regression.py",
        'return mean - jnp.einsum("...i,...ij->...j"',
        'return mean + jnp.einsum("...i,...ij->...j"',
        ("inverse/test_replay.py::test_the_binned_field_approximates_the_gradient",),
    ),
    Mutation(
        "fourth-order weights with a plus",
        "onlooker/fit/kernel_regression.py",
        "signed = 2 * weight - 2 **",
        "signed = 2 * weight + 2 **",
        ("inverse/test_replay.py::test_regression_error_has_the_predicted_order",),
    ),
    Mutation(
        "a ring that keeps the first rows",
        "onlooker/fit/memory.py",
        "lambda number, seen: number % size)",
        "lambda number, seen: number)",
        ("fit/test_memory.py::test_a_ring_holds_the_last",),
    ),
    Mutation(
        "cells that forget nothing",
        "onlooker/fit/memory.py",
        "older = ((1 - forgetting) ** count.astype(jnp.float32)).astype(state.counts.dtype)",
        "older = 1.0",
        ("fit/test_memory.py::test_bins_forget_row_by_row",),
    ),
    # --- the potential
    Mutation(
        "a quadratic with a curl",
        "onlooker/fit/quadratic.py",
        "(across + across.T)",
        "(2 * across)",
        ("fit/test_fits.py::test_a_quadratic_is_recovered_and_its_curvature_is_symmetric",),
    ),
    Mutation(
        "the worst penalty instead of the best",
        "onlooker/fit/quadratic.py",
        "error < best[0]",
        "error > best[0]",
        ("fit/test_fits.py::test_a_quadratic_is_recovered_and_its_curvature_is_symmetric",),
    ),
    Mutation(
        "a sign in the cosines' normal matrix",
        "onlooker/fit/cosine_sums.py",
        "sign = -1 if axis == sloped else 1",
        "sign = 1",
        ("fit/test_fits.py::test_the_normal_matrix_is_read_off_the_sums[2]",),
    ),
    Mutation(
        "cosines without a prior",
        "onlooker/fit/cosine_sums.py",
        "precision = _noise(sums) / scale * _penalty(sums.box, sums.order, length, kernel)\n",
        "precision = 1e-9 * _penalty(sums.box, sums.order, length, kernel)\n",
        ("fit/test_fits.py::test_evidence_breaks_ties_between_priors",),
    ),
    Mutation(
        "the prior chosen by held-out luck alone",
        "onlooker/fit/cosine_sums.py",
        "key=lambda one: (0, -one.evidence) if by_chance(one) else (1, one.error))",
        "key=lambda one: (by_chance(one) and 0, one.error))",
        ("fit/test_fits.py::test_evidence_breaks_ties_between_priors",),
    ),
    Mutation(
        "error bars too narrow by two",
        "onlooker/fit/cosine_sums.py",
        "np.sqrt(self.noise * np.einsum(",
        "0.5 * np.sqrt(self.noise * np.einsum(",
        (COVER,),
    ),
    Mutation(
        "error bars too wide by two",
        "onlooker/fit/cosine_sums.py",
        "np.sqrt(self.noise * np.einsum(",
        "2 * np.sqrt(self.noise * np.einsum(",
        (COVER,),
    ),
    Mutation(
        "error bars that take the quadratic for granted",
        "onlooker/fit/cosine_potential.py",
        "np.sqrt(np.maximum(learnt, self.trend.error_squared(inside, typical)))",
        "np.sqrt(learnt)",
        ("fit/test_fits.py::test_error_bars_include_the_quadratic",),
    ),
    Mutation(
        "∇R̂ in units of the spread",
        "onlooker/fit/cosine_potential.py",
        "self.unit * self.cosines.gradient(inside)) / self.spread",
        "self.unit * self.cosines.gradient(inside))",
        (STEIN,),
    ),
    Mutation(
        "draws of exp(R̂) for exp(βR̂)",
        "onlooker/fit/cosine_potential.py",
        "return beta * self._value(inside) - excess",
        "return self._value(inside) - excess",
        (STEIN,),
    ),
    Mutation(
        "no wall outside the data",
        "onlooker/fit/cosine_potential.py",
        "self._value(inside) - excess - 2 * excess**2",
        "self._value(inside)",
        ("fit/test_fits.py::test_outside_the_data_there_is_a_wall",),
    ),
    Mutation(
        "a new fit that is passed over",
        "onlooker/fit/potential.py",
        "next(kind for kind in FITS if kind.serves(dim))",
        "FITS[-1]",
        (NEW_FIT,),
    ),
    Mutation(
        "an Observer that is loaded without its sums",
        "onlooker/live/saved.py",
        "live._sums = unpack(live._kind.sums, sums)",
        "pass",
        (NEW_FIT,),
    ),
    Mutation(
        "joined sums without the other's held-out rows",
        "onlooker/fit/cosine_potential.py",
        "held=self.held.joined(other.held)",
        "held=self.held",
        (JOINED,),
    ),
    Mutation(
        "joined rows without the other's",
        "onlooker/fit/sums.py",
        "[*self._batches, *other._batches]",
        "[*self._batches]",
        (JOINED_ROWS,),
    ),
    Mutation(
        "rows that are never forgotten",
        "onlooker/fit/sums.py",
        "weights=(1 - share) * batch.weights",
        "weights=batch.weights",
        ("fit/test_potential.py::test_kept_rows_are_dropped_when_they_weigh_nothing_and_are_not_the_last",),
    ),
    Mutation(
        "a reward of version 0.1 that nobody knows",
        "onlooker/reconstruction/store.py",
        "kinds[FORMER_NAMES.get(name, name)]",
        "kinds[name]",
        ("storage/test_older_files.py::test_a_result[two-2]",),
    ),
    Mutation(
        "a picture of samples without samples",
        "onlooker/reconstruction/result.py",
        ".reshape(PLOTTED, PLOTTED), shown)",
        ".reshape(PLOTTED, PLOTTED), shown[:0])",
        ("reconstruction/test_result.py::test_the_picture_of_samples_shows_them[potential]",),
    ),
    Mutation(
        "a result that hides its warnings",
        "onlooker/reconstruction/result.py",
        '", ".join(message.code for message in self.warnings) or "none"',
        '"none"',
        ("reconstruction/test_result.py::test_repr_is_five_lines_and_html_has_a_picture[potential]",),
    ),
    Mutation(
        "cells of all sizes weigh alike",
        "onlooker/fit/cells.py",
        " + np.log(widths / (high - low)).sum(axis=1)",
        "",
        ("fit/test_fits.py::test_cells_follow_a_ridge_that_is_thinner_than_they_are",),
    ),
    Mutation(
        "rows held out instead of agents",
        "onlooker/data/splits.py",
        "held = agents_held_out(seen.agents, seed, seen.agent_names)",
        "held = agents_held_out(np.arange(len(seen)), seed)",
        ("data/test_splits.py::test_whole_agents_are_held_out",),
    ),
    Mutation(
        "agents held out by their place among others, not by name",
        "onlooker/data/splits.py",
        "== 0 for name in called]",
        "== 0 for name in range(len(called))]",
        ("data/test_splits.py::test_whole_agents_are_held_out",),
    ),
    Mutation(
        "a log's agents held out by other names",
        "onlooker/data/splits.py",
        "called = unique if names is None else names[unique]",
        "called = unique",
        ("data/test_splits.py::test_offline_live_and_from_a_log_the_same_agents_are_held_out",),
    ),
    Mutation(
        "all rows held out with their only agent",
        "onlooker/data/splits.py",
        "return bool(FEWEST < held.mean() < MOST)",
        "return True",
        ("data/test_splits.py::test_stretches_are_held_out_where_agents_cannot_be",),
    ),
    # --- forgetting and jumps
    Mutation(
        "an Observer that forgets nothing",
        "onlooker/live/observer.py",
        "self._sums.forget(1 - left[0])",
        "self._sums.forget(0.0)",
        ("live/test_observer.py::test_a_forgetting_rate_follows_a_changed_reward",),
    ),
    Mutation(
        "an Observer that adds rows of learners that ran away",
        "onlooker/live/observer.py",
        "else self._limits.hold(points, gradients)",
        "else np.ones(count, bool)",
        ("live/test_observer.py::test_learners_that_run_away_are_left_out",),
    ),
    Mutation(
        "an Observer that repeats its warnings",
        "onlooker/live/observer.py",
        "self._said |= {message.code for message in new}",
        "self._said |= set()",
        ("live/test_observer.py::test_each_warning_is_raised_once",),
    ),
    Mutation(
        "an Observer that keeps what was before a jump",
        "onlooker/live/observer.py",
        "self._since = self._rows.taken - self._watch.jumps[-1].at",
        "self._since = self._rows.taken",
        ("live/test_observer.py::test_adaptive_forgetting_follows_a_jump",),
    ),
    Mutation(
        "a jump's threshold for a hundred times the false alarms",
        "onlooker/fit/jumps/statistic.py",
        "chance = min(unit * false_alarms / len(windows), 0.5)",
        "chance = min(100 * unit * false_alarms / len(windows), 0.5)",
        ("fit/test_jumps.py::test_false_alarms_are_as_rare_as_asked",),
    ),
    Mutation(
        "a jump's statistic that takes the mean before for known",
        "onlooker/fit/jumps/statistic.py",
        "divisors = windows * (1 + windows / count) *",
        "divisors = windows *",
        ("fit/test_jumps.py::test_the_statistic_is_hotelling_s",),
    ),
    Mutation(
        "residuals with a plus",
        "onlooker/fit/jumps/watch.py",
        "residuals = gradients - self._expected.gradient(points)",
        "residuals = gradients + self._expected.gradient(points)",
        ("fit/test_jumps.py::test_a_change_of_slope_or_curvature_is_found_and_placed",),
    ),
    Mutation(
        "a jump that is detected for ever",
        "onlooker/fit/jumps/watch.py",
        "self.jump_detected = self.count > before",
        "self.jump_detected = self.count > 0",
        ("fit/test_jumps.py::test_jumps_are_the_same_row_by_row_or_all_at_once",),
    ),
    Mutation(
        "another detector asked and not heard",
        "onlooker/fit/jumps/detector.py",
        "self.jump_detected = bool(self.detector.jump_detected)",
        "self.jump_detected = False",
        ("live/test_observer.py::test_another_detector_notices_the_jump",),
    ),
    Mutation(
        "a jump's row counted among the cleaned ones",
        "onlooker/fit/jumps/record.py",
        "return jump.at if seen.rows is None else",
        "return jump.at if True else",
        ("reconstruction/test_reconstruct.py::test_a_record_with_a_jump_is_warned_about",),
    ),
    # --- what is seen
    Mutation(
        "gradients read across agents",
        "onlooker/data/iterates.py",
        "follows = owner[here] == owner[after]\n",
        "follows = np.ones(len(here), bool)\n",
        ("data/test_observations.py::test_no_gradient_is_read_across_a_restart",),
    ),
    Mutation(
        "iterates read downhill",
        "onlooker/data/iterates.py",
        "steps = (points[after] - points[here])",
        "steps = (points[here] - points[after])",
        ("data/test_observations.py::test_gradients_from_iterates_point_uphill",),
    ),
    Mutation(
        "iterates' steps not divided by ε",
        "onlooker/data/iterates.py",
        "steps /= np.broadcast_to",
        "steps *= np.broadcast_to",
        ("data/test_observations.py::test_gradients_from_iterates_point_uphill",),
    ),
    Mutation(
        "a loss's gradients not turned",
        "onlooker/data/observations.py",
        "gradient_rows = -gradient_rows",
        "gradient_rows = +gradient_rows",
        ("data/test_observations.py::test_losses_are_turned_into_rewards_but_iterates_are_not",),
    ),
    Mutation(
        "gradients that are NaN taken in",
        "onlooker/data/observations.py",
        "for column in (*points.T, *gradients.T):",
        "for column in points.T:",
        ("data/test_observations.py::test_rows_that_are_not_finite_are_rejected_and_counted",),
    ),
    Mutation(
        "shards read from the last to the first",
        "onlooker/data/log/reader.py",
        'return sorted(path for path in folder.iterdir() if path.suffix == ".parquet"'
        ' and not path.name.startswith("."))',
        'return sorted((one for one in folder.iterdir() if one.suffix == ".parquet"), reverse=True)',
        ("data/test_log.py::test_what_is_written_is_read",),
    ),
    Mutation(
        "torn shards passed over in silence",
        "onlooker/data/log/reader.py",
        "self.torn.add(shard.name)",
        "pass",
        ("data/test_log.py::test_a_torn_shard_is_skipped_and_counted",),
    ),
    Mutation(
        "a log's direction not minded",
        "onlooker/data/log/reader.py",
        "rows._replace(gradients=-rows.gradients)",
        "rows._replace(gradients=rows.gradients)",
        ("data/test_log.py::test_a_loss_s_gradients_are_turned_by_their_schema_and_a_wrong_sign_is_noticed",),
    ),
    Mutation(
        "rows that wait lost in a checkpoint",
        "onlooker/live/observer.py",
        "content = packed(pack(self))",
        'content = packed({name: part for name, part in pack(self).items() if "waiting" not in name})',
        ("storage/test_state_file.py::test_loaded_it_goes_on_to_the_last_bit[2-None]",),
    ),
    Mutation(
        "a position that forgets the rows of a shard already read",
        "onlooker/data/log/tail.py",
        "end = int(read) - count + first + len(some.points)",
        "end = int(read)",
        ("data/test_log.py::test_a_position_within_a_shard_is_gone_on_from",),
    ),
    Mutation(
        "a resumed watch that reads its log from the first row",
        "onlooker/live/page/source.py",
        "self._begin = log, position",
        'self._begin = log, ""',
        ("live/test_resume.py::test_a_resumed_watch_has_learnt_the_same",),
    ),
    Mutation(
        "a damaged checkpoint believed",
        "onlooker/storage/state_file.py",
        'b"\\n", arrays]).digest() != digest:',
        'b"\\n", arrays]).digest() == b"":',
        ("storage/test_state_file.py::test_what_is_no_checkpoint_is_refused",),
    ),
    Mutation(
        "a union's member guessed from its fields",
        "onlooker/storage/trees.py",
        "    if TYPE in flat:",
        "    if False:",
        ("storage/test_trees.py::test_the_type_of_a_union_s_member_is_kept[Line]",),
    ),
    Mutation(
        "a file written in its place, not beside it",
        "onlooker/storage/atomic.py",
        'hidden = path.with_name(f".{path.name}.writing")',
        "hidden = path",
        (
            "storage/test_atomic.py::test_a_file_that_cannot_be_written_leaves_the_old_one",
            "storage/test_atomic.py::test_a_summary_that_cannot_be_written_leaves_the_old_one",
        ),
    ),
    Mutation(
        "a shard's name taken by two writers",
        "onlooker/storage/atomic.py",
        "        os.link(hidden, name)",
        "        os.replace(hidden, name)",
        ("storage/test_atomic.py::test_no_two_writers_get_the_same_name",),
    ),
    Mutation(
        "a later format read as if it were known",
        "onlooker/storage/signature.py",
        "if not found <= known:",
        "if False:",
        (
            "storage/test_atomic.py::test_a_later_format_is_rejected",
            "storage/test_older_files.py::test_a_result_that_was_changed_or_is_newer_is_rejected",
        ),
    ),
    Mutation(
        "a result whose numbers were changed believed",
        "onlooker/reconstruction/store.py",
        "if digest is not None and digest != _digest(path):",
        "if digest is not None and digest == b'':",
        ("storage/test_older_files.py::test_a_result_that_was_changed_or_is_newer_is_rejected",),
    ),
    # --- what is counted
    Mutation(
        "counts in float32, which stop at 2²⁴",
        "onlooker/engine/accumulators.py",
        "return np.int32 if forgetting is None else np.float32",
        "return np.float32",
        ("engine/test_accumulators.py::test_counts_go_on_beyond_what_float32_can_count",),
    ),
    Mutation(
        "a histogram whose past does not fade",
        "onlooker/engine/accumulators.py",
        "return counts * faded + ",
        "return counts + ",
        ("engine/test_accumulators.py::test_counts_fade_with_every_later_step",),
    ),
    Mutation(
        "R̂ = log p̂ without 1/β",
        "onlooker/fit/grid_reward.py",
        "return (logarithm - top) / self.beta",
        "return logarithm - top",
        ("engine/test_accumulators.py::test_reward_is_the_logarithm_and_nan_where_nothing_was_seen",),
    ),
    Mutation(
        "total variation without its ½",
        "onlooker/core/distances.py",
        "return 0.5 * float(np.abs(one",
        "return float(np.abs(one",
        ("engine/test_accumulators.py::test_coarser_bins_and_distances",),
    ),
    Mutation(
        "W1 of the bins' centres by their numbers",
        "onlooker/core/distances.py",
        "(edges[1:] + edges[:-1]) / 2, edges[-1:]",
        "np.arange(len(edges) - 1.0), edges[-1:]",
        ("engine/test_accumulators.py::test_coarser_bins_and_distances",),
    ),
    Mutation(
        "rhat without ranks",
        "onlooker/engine/diagnostics.py",
        'draw_axis=1, method="rank")',
        'draw_axis=1, method="split")',
        ("engine/test_diagnostics.py::test_rhat_knows_frozen_chains_from_moving_ones",),
    ),
    # --- randomness and the engine
    Mutation(
        "the same noise in every block",
        "onlooker/engine/loop.py",
        "jax.random.fold_in(state.key, state.block)",
        "jax.random.fold_in(state.key, 0)",
        (BLOCKS,),
    ),
    Mutation(
        "both words of Threefry the same",
        "onlooker/core/random.py",
        "lax.iota(jnp.uint32, math.prod(shape))).reshape(shape)",
        "lax.iota(jnp.uint32, math.prod(shape)))[lax.iota(int, math.prod(shape)) // 2].reshape(shape)",
        ("engine/test_run.py::test_noise_is_standard_normal_and_coins_are_fair",),
    ),
    Mutation(
        "the same noise in both halves of a block",
        "onlooker/core/random.py",
        "lax.iota(jnp.uint32, math.prod(shape))).reshape(shape)",
        "lax.iota(jnp.uint32, math.prod(shape)))[lax.iota(int, math.prod(shape)) % -(-math.prod(shape) // 2)]"
        ".reshape(shape)",
        (BLOCKS,),
    ),
    Mutation(
        "one uniform number for two",
        "onlooker/core/random.py",
        "_uniform(threefry_2x32(jax.random.key_data(key), counter))",
        "_uniform(threefry_2x32(jax.random.key_data(key), counter))[:1].repeat(2)",
        (UNBIASED,),
    ),
    Mutation(
        "burn-in counted",
        "onlooker/engine/loop.py",
        "(taken <= steps) & (first_step + taken > plan.burn_in)",
        "taken <= steps",
        ("engine/test_run.py::test_burn_in_is_not_counted_and_thin_counts_every_nth",),
    ),
    Mutation(
        "a thinned run that counts every recorded row as one step",
        "onlooker/engine/loop.py",
        "jnp.arange(1, recorded.shape[1] + 1, dtype=steps.dtype) * plan.thin",
        "jnp.arange(1, recorded.shape[1] + 1, dtype=steps.dtype)",
        ("engine/test_run.py::test_burn_in_is_not_counted_and_thin_counts_every_nth",),
    ),
    Mutation(
        "a memory updated twice with every block",
        "onlooker/engine/loop.py",
        "memory = plan.update(memory, evidence, steps)",
        "memory = plan.update(plan.update(memory, evidence, steps), evidence, steps)",
        ("engine/test_run.py::test_a_memory_is_updated_once_for_all_chains",),
    ),
    # --- the world
    Mutation(
        "a stationary law without its division",
        "onlooker/simulation/cmdp.py",
        "share = chain[..., :last, last] / away.sum(-1)[..., None]",
        "share = chain[..., :last, last]",
        ("simulation/test_cmdp.py::test_values_are_those_of_the_stationary_law",),
    ),
    Mutation(
        "costs kept above their limits",
        "onlooker/simulation/cmdp.py",
        "kept = self.cost.reshape(-1, states * actions)",
        "kept = -self.cost.reshape(-1, states * actions)",
        ("simulation/test_cmdp.py::test_the_paper_s_example_has_its_optimum",),
    ),
    Mutation(
        "the penalty B² − limit",
        "onlooker/simulation/cmdp.py",
        "excess = values[..., 1:] - self.limit.astype(values.dtype)",
        "excess = (abs(values[..., 1:] ** 2 - self.limit.astype(values.dtype))) ** 0.5",
        ("simulation/test_cmdp.py::test_the_penalty_is_on_the_square_of_the_excess",),
    ),
    Mutation(
        "Poisson's equation left out of ∂J/∂φ",
        "onlooker/simulation/cmdp.py",
        "(self.payoffs + ahead)",
        "(self.payoffs + 0 * ahead)",
        ("simulation/test_cmdp.py::test_gradients_are_derivatives_along_policies",),
    ),
    Mutation(
        "a batch's baseline is its own value",
        "onlooker/simulation/policy_gradient.py",
        "both.value[::-1, :, None]",
        "both.value[:, :, None]",
        ("simulation/test_policy_gradient.py::test_no_batch_is_its_own_baseline",),
    ),
    Mutation(
        "the penalty's gradient from one batch at a time",
        "onlooker/simulation/policy_gradient.py",
        "excess[0] @ slopes[1, 1:] + excess[1] @ slopes[0, 1:]",
        "excess[0] @ slopes[0, 1:] + excess[1] @ slopes[1, 1:]",
        (UNBIASED,),
    ),
    Mutation(
        "regimes jump by the transposed generator",
        "onlooker/simulation/switching.py",
        "self.rate * self.generator, others",
        "self.rate * self.generator.T, others",
        ("simulation/test_switching.py::test_regimes_follow_the_generator",),
    ),
    # --- messages
    Mutation(
        "every warning is harmless",
        "onlooker/core/messages.py",
        "return CODES[self.code]",
        "return False",
        ("core/test_messages.py::test_only_what_may_be_wrong_is_distrusted",),
    ),
    Mutation(
        "messages are raised by every call inside another",
        "onlooker/core/messages.py",
        "[] if _held_back.get() else list(messages)",
        "list(messages)",
        ("core/test_messages.py::test_a_message_is_raised_once_by_whoever_is_outermost",),
    ),
    Mutation(
        "reconstruct warns nobody",
        "onlooker/reconstruction/reconstruct.py",
        "deliver(result.warnings, strict=strict)",
        "trusted = strict",
        ("core/test_messages.py::test_reconstruct_warns_and_with_strict_raises",),
    ),
    # --- the oracles
    Mutation(
        "Fokker–Planck with the drift turned",
        "onlooker/simulation/exact/fokker_planck.py",
        "peclet = step * (pull[here] + pull[next_])",
        "peclet = -step * (pull[here] + pull[next_])",
        ("simulation/test_exact.py::test_fokker_planck_in_time_is_ornstein_uhlenbeck_s",),
    ),
    Mutation(
        "Fokker–Planck without the cross term's sign",
        "onlooker/simulation/exact/fokker_planck.py",
        "right[lower], -rate[side][upper])",
        "right[lower], rate[side][upper])",
        ("simulation/test_exact.py::test_fokker_planck_finds_a_correlated_gaussian",),
    ),
    Mutation(
        "the averaged diffusion with β/2 for β²/4",
        "onlooker/simulation/exact/averaged.py",
        "unit + step_size * beta**2 / 4 * noise / pi",
        "unit + step_size * beta / 2 * noise / pi",
        (
            "inverse/test_laws_pools.py::test_the_averaged_diffusion_has_the_exact_variance_to_first_order[reweighted-0.015]",
        ),
    ),
    Mutation(
        "regimes coupled by the transposed generator",
        "onlooker/simulation/exact/switched.py",
        "np.asarray(rates, float).T)",
        "np.asarray(rates, float))",
        ("simulation/test_switched.py::test_the_mean_of_the_switching_law_solves_its_equation",),
    ),
    Mutation(
        "a box's corner is broadcast to the rows in silence",
        "onlooker/fit/memory.py",
        "observations.point - low[None]",
        "observations.point - low",
        ("fit/test_memory.py::test_bins_forget_row_by_row",),
    ),
)
