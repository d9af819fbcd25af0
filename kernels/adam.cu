// Adam (Kingma and Ba, arXiv:1412.6980) over the flat buffer, on the clipped gradient.
#include "device.cuh"

KERNEL adam(float* parameters,        // (n)
            const float* gradient,    // (n), before clipping
            const float* scale,       // (1), the clipping's factor
            float* first_moment,      // (n)
            float* second_moment,     // (n)
            const float* schedule,    // (3): learning rate, 1 - beta1^t, 1 - beta2^t
            int n, float beta1, float beta2, float epsilon) {
    const Range share = block_share(n);
    BLOCK_FOR(i, share.begin, share.end) {
        const float g = gradient[i] * scale[0];
        const float m = beta1 * first_moment[i] + (1.0f - beta1) * g;
        const float v = beta2 * second_moment[i] + (1.0f - beta2) * g * g;
        first_moment[i] = m;
        second_moment[i] = v;
        parameters[i] -= schedule[0] * (m / schedule[1]) / (square_root(v / schedule[2]) + epsilon);
    }
}
