// What the shapes of an MLP come to, so that no one else counts it: floats packed, of a partition, of a sample's
// distribution, and of a GPU's tile of 32, 64 and 128 samples.
#include "mlp.cuh"

KERNEL mlp_sizes(int* sizes) {  // (6)
    BLOCK_FOR(only, 0, 1) {
        sizes[0] = PACKED_SIZE;
        sizes[1] = GRADIENT_SIZE;
        sizes[2] = PARAMETER_WIDTH;
        for (int k = 0; k < 3; k++) sizes[3 + k] = tile_size(32 << k, DEVICE_SKEW);
    }
}
