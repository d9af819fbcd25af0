// The mathematics of math.cuh and philox.cuh, value by value.
#include "philox.cuh"

KERNEL math_probe(const float* x,  // (N)
                  float* exp,      // (N)
                  float* log,      // (N)
                  float* sin,      // (N)
                  float* cos,      // (N)
                  float* tanh,     // (N)
                  float* lanes,    // (3, N): exp, log and tanh again, a vector at a time
                  float* normal,   // (N, 2), from the words (bits of x[n], bits of x[N - 1 - n])
                  int N) {
    const Range share = block_share(N);
    BLOCK_FOR(n, share.begin, share.end) {
        exp[n] = exp_(x[n]);
        log[n] = log_(x[n]);
        tanh[n] = tanh_(x[n]);
        const SinCos angle = sincos_(x[n]);
        sin[n] = angle.sin;
        cos[n] = angle.cos;
        const NormalPair pair = normal_pair(as_bits(x[n]), as_bits(x[N - 1 - n]));
        normal[2 * n] = pair.first;
        normal[2 * n + 1] = pair.second;
    }
    BLOCK_FOR(v, 0, (share.end - share.begin + VECTOR - 1) / VECTOR) {
        float numbers[VECTOR], results[3][VECTOR];
        const int first = share.begin + v * VECTOR;
        for (int l = 0; l < VECTOR; l++) numbers[l] = first + l < share.end ? x[first + l] : 1.0f;
        const vec a = load_anywhere(numbers);
        store_anywhere(results[0], exp_(a));
        store_anywhere(results[1], log_(a));
        store_anywhere(results[2], tanh_(a));
        for (int k = 0; k < 3; k++)
            for (int l = 0; l < VECTOR && first + l < share.end; l++) lanes[k * N + first + l] = results[k][l];
    }
}
