// Muon (Jordan et al., 2024, kellerjordan.github.io/posts/muon) on matrices of one shape, on the clipped gradient: the
// momentum, looked ahead as Nesterov's, is made nearly orthogonal before it becomes a step. A block a matrix.
//
// Each Newton-Schulz round maps every singular value s of the matrix Z to as + bs^3 + cs^5, which from a norm of 1 brings
// all but the smallest ones to 0.68 to 1.20: Z <- aZ + Z(bG + cGG), G = Z'Z. Z stands on its shorter side (a wide matrix
// is transposed as it is read), so that G is small; its rows are padded to cache lines with zeros, which stay zeros.
// The step has a root mean square of 0.2, about Adam's: the factor 0.2 sqrt(longer side) (Liu et al., arXiv:2502.16982,
// eq. 4), so one learning rate serves both. Constants: LS_INPUTS, LS_OUTPUTS, the matrices' shape.
#include "tile.cuh"

constexpr bool TALL = LS_INPUTS >= LS_OUTPUTS;
constexpr int LENGTH = TALL ? LS_INPUTS : LS_OUTPUTS, WIDTH = TALL ? LS_OUTPUTS : LS_INPUTS, PITCH = padded(WIDTH);
constexpr int ROUNDS = 5;
constexpr float A = 3.4445f, B = -4.7750f, C = 2.0315f;

// Where the element of Z at i, counted with the padding, lies in the flat buffer's matrix; negative: nowhere.
DEVICE int place(int i) {
    const int row = i / PITCH, column = i % PITCH;
    return column >= WIDTH ? -1 : TALL ? row * LS_OUTPUTS + column : column * LS_OUTPUTS + row;
}

KERNEL muon(float* parameters,      // (n)
            const float* gradient,  // (n), before clipping
            const float* scale,     // (1), the clipping's factor
            float* momentum,        // (n)
            const int* offset,      // (M), where each matrix begins, [inputs][outputs]
            float* scratch,         // (M, S): two of Z, two of G
            const float* schedule,  // (3): the learning rate first
            int n, int M, int S, float beta) {
    SHARED(float, columns, PITCH);
    const int begin = offset[blockIdx.x];
    float *z = scratch + (long long)blockIdx.x * S, *next = z + LENGTH * PITCH;
    float *gram = next + LENGTH * PITCH, *polynomial = gram + WIDTH * PITCH;
    BLOCK_FOR(i, 0, LENGTH * PITCH) {
        const int own = place(i);
        float looked_ahead = 0.0f;
        if (own >= 0) {
            const float g = gradient[begin + own] * scale[0];
            const float m = beta * momentum[begin + own] + (1.0f - beta) * g;
            momentum[begin + own] = m;
            looked_ahead = beta * m + (1.0f - beta) * g;
        }
        z[i] = looked_ahead;
    }
    BARRIER();
    // The sum of squares: a chain a column, then the columns in order.
    BLOCK_FOR(v, 0, PITCH / VECTOR) {
        vec chain = splat(0.0f);
        for (int row = 0; row < LENGTH; row++) {
            const vec element = load(z + row * PITCH + v * VECTOR);
            chain = fused_multiply_add(element, element, chain);
        }
        store_anywhere(columns + v * VECTOR, chain);
    }
    BARRIER();
    float sum = 0.0f;
    for (int column = 0; column < WIDTH; column++) sum += columns[column];
    const float norm = square_root(sum) + 1e-7f;
    BLOCK_FOR(v, 0, LENGTH * PITCH / VECTOR) store(z + v * VECTOR, load(z + v * VECTOR) / norm);
    BARRIER();

    const auto nothing = [](int, int) { return splat(0.0f); };
    for (int round = 0; round < ROUNDS; round++) {
        tile_product<PITCH>(WIDTH, LENGTH, Columns{z, PITCH}, Matrix{z, PITCH}, nothing,
                            [&](int r, int c, vec product) { store(gram + r * PITCH + c, product); });
        BARRIER();
        tile_product<PITCH>(WIDTH, WIDTH, Rows{gram, PITCH}, Matrix{gram, PITCH}, nothing, [&](int r, int c, vec product) {
            store(polynomial + r * PITCH + c, fused_multiply_add(C, product, B * load(gram + r * PITCH + c)));
        });
        BARRIER();
        tile_product<PITCH>(
            LENGTH, WIDTH, Rows{z, PITCH}, Matrix{polynomial, PITCH},
            [&](int r, int c) { return A * load(z + r * PITCH + c); },
            [&](int r, int c, vec product) { store(next + r * PITCH + c, product); });
        BARRIER();
        float* const last = z;
        z = next;
        next = last;
    }
    const float step = schedule[0] * (0.2f * square_root((float)LENGTH));
    BLOCK_FOR(i, 0, LENGTH * PITCH) {
        const int own = place(i);
        if (own >= 0) parameters[begin + own] -= step * z[i];
    }
}
