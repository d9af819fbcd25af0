// The PPO loss of a minibatch and its gradient; loss.cuh says what it is.
//
// A block owns a partition of the samples and writes its sums; `sum_partials` adds the partitions in order.
#include "loss.cuh"

KERNEL ppo_loss(const float* parameters,       // (B, PARAMETER_WIDTH) of the policy that is being updated
                const float* value,            // (B)
                const int* index,              // (B) rows of the rollout
                const ActionElement* action,   // (M) or (M, ACTION_WIDTH)
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
        float sum[METRICS] = {};
        for (int b = share.begin + lane; b < share.end; b += LANES) {
            const int i = index[b];
            const Distribution<float> distribution(parameters + b * PARAMETER_WIDTH);
            const float a = (advantage[i] - advantage_shift[0]) * advantage_shift[1];
            float term[METRICS];
            policy_loss(distribution, action + i * ACTION_WIDTH, old_log_prob[i], a, clip_coef, ent_coef, scale,
                        grad_parameters + b * PARAMETER_WIDTH, term);
            grad_value[b] = value_loss(value[b], returns[i], vf_coef, scale, term);
            for (int metric = 0; metric < METRICS; metric++) sum[metric] += term[metric];
        }
        for (int metric = 0; metric < METRICS; metric++) sums[lane * METRICS + metric] = sum[metric];
    }
    BARRIER();
    BLOCK_FOR(metric, 0, METRICS) {
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; lane++) sum += sums[lane * METRICS + metric];
        partials[(int)blockIdx.x * METRICS + metric] = sum;
    }
}
