// Adam (Kingma and Ba, arXiv:1412.6980) over the flat buffer, on the clipped gradient.
#include "vector.cuh"

struct AdamStep {
    float scale, learning_rate, correction1, correction2, beta1, beta2, epsilon;

    // One parameter, or a vector of them.
    template <class F>
    DEVICE_MEMBER void operator()(F& parameter, F gradient, F& first, F& second) const {
        const F g = gradient * scale;
        first = beta1 * first + (1.0f - beta1) * g;
        second = beta2 * second + (1.0f - beta2) * g * g;
        parameter = parameter - learning_rate * (first / correction1) / (square_root(second / correction2) + epsilon);
    }
};

KERNEL adam(float* parameters,        // (n)
            const float* gradient,    // (n), before clipping
            const float* scale,       // (1), the clipping's factor
            float* first_moment,      // (n)
            float* second_moment,     // (n)
            const float* schedule,    // (3): learning rate, 1 - beta1^t, 1 - beta2^t
            int n, float beta1, float beta2, float epsilon) {
    const AdamStep step{scale[0], schedule[0], schedule[1], schedule[2], beta1, beta2, epsilon};
    const Range share = block_share(n);
    const int whole = share.begin + (share.end - share.begin) / VECTOR * VECTOR;
    BLOCK_FOR(k, 0, (whole - share.begin) / VECTOR) {
        const int i = share.begin + k * VECTOR;
        vec p = load_anywhere(parameters + i), m = load_anywhere(first_moment + i), v = load_anywhere(second_moment + i);
        step(p, load_anywhere(gradient + i), m, v);
        store_anywhere(parameters + i, p);
        store_anywhere(first_moment + i, m);
        store_anywhere(second_moment + i, v);
    }
    BLOCK_FOR(i, whole, share.end) step(parameters[i], gradient[i], first_moment[i], second_moment[i]);
}
