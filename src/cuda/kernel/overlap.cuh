/* A kernel that begins while the one before it ends: its launch has cuda_shape.awaits. */
#ifndef TIGON_CUDA_KERNEL_OVERLAP_CUH
#define TIGON_CUDA_KERNEL_OVERLAP_CUH

/* The next kernel may begin, as far as await_kernel(), once all blocks have come here. */
__device__ static inline void next_kernel_may_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/* Until the kernel before has ended, and what it wrote is seen. */
__device__ static inline void await_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
