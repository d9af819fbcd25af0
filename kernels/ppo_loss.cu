// The PPO loss of a minibatch and its gradient (Schulman et al., arXiv:1707.06347, eq. 7 and 9).
//
//   ratio  r = exp(log pi(a|s) - log pi_old(a|s))
//   policy loss  = -mean(min(r * A, clip(r, 1 - eps, 1 + eps) * A))
//   value loss   = 0.5 * mean((V - R)^2)
//   loss         = policy loss - ent_coef * mean(entropy) + vf_coef * value loss
//   approx KL    = mean((r - 1) - log r)         (Schulman, "Approximating KL divergence", 2020: the low-variance form)
//   clip fraction= mean(|r - 1| > eps)
//
// A block owns a partition of the samples and writes its sums; `sum_partials` adds the partitions in order.
#include "distributions.cuh"

constexpr int METRICS = 5;  // policy loss, value loss, entropy, approximate KL, clip fraction

KERNEL ppo_loss(const float* parameters,       // (B, PARAMETER_WIDTH) of the policy that is being updated
                const float* value,            // (B)
                const int* index,              // (B) rows of the rollout
                const ActionElement* action,   // (M) or (M, A)
                const float* old_log_prob,     // (M)
                const float* advantage,        // (M)
                const float* returns,          // (M)
                const float* advantage_shift,  // (2): each advantage enters as (advantage - shift[0]) * shift[1]
                float* grad_parameters,        // (B, PARAMETER_WIDTH)
                float* grad_value,             // (B)
                float* partials,               // (P, METRICS)
                int B, int P, float clip_coef, float ent_coef, float vf_coef) {
    SHARED(float, sums, LANES * METRICS);
    const Range share = block_share(B);
    const float scale = 1.0f / (float)B;
    BLOCK_FOR(lane, 0, LANES) {
        float policy_loss = 0.0f, value_loss = 0.0f, entropy = 0.0f, approx_kl = 0.0f, clipped = 0.0f;
        for (int b = share.begin + lane; b < share.end; b += LANES) {
            const int i = index[b];
            const Distribution distribution(parameters + b * PARAMETER_WIDTH);
            const ActionElement* taken = action + i * ACTION_WIDTH;
            const float log_ratio = distribution.log_prob(taken) - old_log_prob[i];
            const float ratio = exp_(log_ratio);
            const float a = (advantage[i] - advantage_shift[0]) * advantage_shift[1];
            const float low = 1.0f - clip_coef, high = 1.0f + clip_coef;
            const float bounded = ratio < low ? low : ratio > high ? high : ratio;
            const float surrogate = ratio * a, surrogate_clipped = bounded * a;
            const float error = value[b] - returns[i];
            policy_loss -= surrogate_clipped < surrogate ? surrogate_clipped : surrogate;
            value_loss += 0.5f * error * error;
            entropy += distribution.entropy();
            approx_kl += (ratio - 1.0f) - log_ratio;
            clipped += ratio < low || ratio > high ? 1.0f : 0.0f;
            // The smaller surrogate carries the gradient: a clipped one is constant.
            const float by_log_prob = surrogate_clipped < surrogate ? 0.0f : -surrogate * scale;
            distribution.gradient(taken, by_log_prob, -ent_coef * scale, grad_parameters + b * PARAMETER_WIDTH);
            grad_value[b] = vf_coef * error * scale;
        }
        float* mine = sums + lane * METRICS;
        mine[0] = policy_loss;
        mine[1] = value_loss;
        mine[2] = entropy;
        mine[3] = approx_kl;
        mine[4] = clipped;
    }
    BARRIER();
    BLOCK_FOR(metric, 0, METRICS) {
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; lane++) sum += sums[lane * METRICS + metric];
        partials[(int)blockIdx.x * METRICS + metric] = sum;
    }
}
