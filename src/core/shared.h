/* TIGON_SHARED: functions of headers that host code and CUDA kernels call alike. */
#ifndef TIGON_CORE_SHARED_H
#define TIGON_CORE_SHARED_H

#ifdef __CUDACC__
#define TIGON_SHARED static inline __host__ __device__
#else
#define TIGON_SHARED static inline
#endif

#endif
