/* TIGON_SHARED: functions of headers that host code, CUDA kernels and Ascend kernels call alike. */
#ifndef TIGON_CORE_SHARED_H
#define TIGON_CORE_SHARED_H

#ifdef __CUDACC__
#define TIGON_SHARED static inline __host__ __device__
#elif defined(TIGON_AICORE_DEVICE)
#define TIGON_SHARED static __aicore__ inline
#else
#define TIGON_SHARED static inline
#endif

#endif
