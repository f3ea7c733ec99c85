// Stands in for CUDA's header of that name: what TensorRT's headers and the plugins around kernels include.
#pragma once

#include <cuda_runtime.h>

typedef struct CUevent_st* cudaEvent_t;
