// The PPO loss of a sample and its gradient (Schulman et al., arXiv:1707.06347, eq. 7 and 9). F is float or vec.
//
//   ratio  r = exp(log pi(a|s) - log pi_old(a|s))
//   policy loss  = -mean(min(r * A, clip(r, 1 - eps, 1 + eps) * A))
//   value loss   = 0.5 * mean((V - R)^2)
//   loss         = policy loss - ent_coef * mean(entropy) + vf_coef * value loss
//   approx KL    = mean((r - 1) - log r)         (Schulman, "Approximating KL divergence", 2020: the low-variance form)
//   clip fraction= mean(|r - 1| > eps)
#pragma once
#include "distributions.cuh"

enum Metric { POLICY_LOSS, VALUE_LOSS, ENTROPY, APPROX_KL, CLIP_FRACTION, METRICS };

// One sample's terms of the metrics but VALUE_LOSS, and the gradient of its share (`scale`, 1 / B) by the parameters.
template <class F>
DEVICE_MEMBER void policy_loss(const Distribution<F>& distribution, const typename Distribution<F>::Action* taken,
                               F old_log_prob, F advantage, float clip_coef, float ent_coef, float scale,
                               F* grad_parameters, F* metric) {
    const F log_ratio = distribution.log_prob(taken) - old_log_prob;
    const F ratio = exp_(log_ratio);
    const float low = 1.0f - clip_coef, high = 1.0f + clip_coef;
    const F bounded = clamp(ratio, low, high);
    const F surrogate = ratio * advantage, surrogate_clipped = bounded * advantage;
    const auto cut = surrogate_clipped < surrogate;
    metric[POLICY_LOSS] = -select(cut, surrogate_clipped, surrogate);
    metric[ENTROPY] = distribution.entropy();
    metric[APPROX_KL] = (ratio - 1.0f) - log_ratio;
    metric[CLIP_FRACTION] = select((ratio < low) | (ratio > high), all<F>(1.0f), all<F>(0.0f));
    // The smaller surrogate carries the gradient: a clipped one is constant.
    const F by_log_prob = select(cut, all<F>(0.0f), -surrogate * scale);
    distribution.gradient(taken, by_log_prob, -ent_coef * scale, grad_parameters);
}

// One sample's term of VALUE_LOSS, and the gradient of its share by the value.
template <class F>
DEVICE_MEMBER F value_loss(F value, F returns, float vf_coef, float scale, F* metric) {
    const F error = value - returns;
    metric[VALUE_LOSS] = 0.5f * error * error;
    return vf_coef * error * scale;
}
