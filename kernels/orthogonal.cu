// Orthogonal initialization (Saxe et al., arXiv:1312.6120): the smaller side's vectors become orthonormal, times a gain.
// Gaussian vectors from Philox, Gram-Schmidt twice ("twice is enough": Giraud et al., 2005), sums in a stated order: no
// LAPACK, so the first policy is the same on every machine. One block.
#include "seeds.cuh"

KERNEL orthogonal(float* weight,  // (I, O), input-major
                  int I, int O, float gain, unsigned layer, unsigned long long run_seed) {
    SHARED(float, sums, LANES);
    const bool tall = I >= O;  // then the O columns of length I are made orthonormal, else the I rows of length O
    const int vectors = tall ? O : I, length = tall ? I : O;
    const int across = tall ? 1 : O, along = tall ? O : 1;  // strides from vector to vector and within one
    BLOCK_FOR(quad, 0, (I * O + 3) / 4) {
        const Normals z = normals(philox(quad, layer, PURPOSE_WEIGHTS, 0, run_seed));
        for (int k = 0; k < 4 && quad * 4 + k < I * O; k++) weight[quad * 4 + k] = z.value[k];
    }
    BARRIER();
    for (int v = 0; v < vectors; v++) {
        float* mine = weight + v * across;
        // Twice against every earlier vector; the last round (u = v) normalizes.
        for (int round = 0; round < 2 * v + 1; round++) {
            const int u = round == 2 * v ? v : round % v;
            const float* other = weight + u * across;
            BLOCK_FOR(lane, 0, LANES) {
                float sum = 0.0f;
                for (int k = lane; k < length; k += LANES) sum = fused_multiply_add(mine[k * along], other[k * along], sum);
                sums[lane] = sum;
            }
            BARRIER();
            float product = 0.0f;
            for (int lane = 0; lane < LANES; lane++) product += sums[lane];
            const float norm = square_root(product);
            BLOCK_FOR(k, 0, length)
                mine[k * along] = u == v ? mine[k * along] / norm : fused_multiply_add(-product, other[k * along], mine[k * along]);
            BARRIER();
        }
    }
    BLOCK_FOR(i, 0, I * O) weight[i] *= gain;
}
