/* Tigon: fused operators for training large language models, forward and backward, behind one small C ABI.
 *
 * How it works
 *   A context binds a device and a stream. An op takes the context and one struct of arguments, set by name. Zero means
 *   default. A tensor is a view of memory that the caller owns. An op checks everything first. When it returns an error,
 *   nothing was written, and tigon_last_error() has one exact sentence. Ops neither allocate nor wait. If one needs scratch
 *   memory, tigon_<op>_<entry>_workspace() returns the number of bytes, and the caller passes them in.
 *
 * What holds for every op
 *   Sizes are int64. A stride is 0 or more, and the last one is 1. The stride of an extent of 1 is ignored. Where a header
 *   calls leading strides free, dimensions that lie end to end in all tensors of the shape count as one. At most three may
 *   remain. Other layouts are refused: the caller copies them. Zero rows are legal and do nothing.
 *   An output may be an input only where the op's header says so, and then as exactly the same view. Partial overlap, or a
 *   workspace that overlaps a tensor, is TIGON_ERROR_ALIAS.
 *   The same inputs on the same device and variant give the same bits. On the CPU they do so for any number of threads, and
 *   for a row in any batch. For linear, and ops that call it, tigon_context_gemm() says which of these hold.
 *   The caller's floating-point state, errno and streams stay as they were. fork() after use works: the child's calls run
 *   on one thread.
 *
 * A complete example: normalise two rows.
 *
 *   #include <stdio.h>
 *   #include <tigon/tigon.h>
 *
 *   int main(void) {
 *     tigon_context *context;
 *     const tigon_context_desc cpu = {.device = "cpu"}; // by default a GPU comes first, which cannot read x
 *     if (tigon_context_create(&cpu, &context) != TIGON_OK) return puts(tigon_last_error(NULL)), 1;
 *     float x[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, w[4] = {1, 1, 1, 1}, y[2][4];
 *     tigon_rms_norm_fwd_args args = {
 *         .x = tigon_tensor_2d(x, TIGON_F32, 2, 4),
 *         .w = tigon_tensor_1d(w, TIGON_F32, 4),
 *         .y = tigon_tensor_2d(y, TIGON_F32, 2, 4),
 *         .eps = 1e-6,
 *     };
 *     if (tigon_rms_norm_fwd(context, &args) != TIGON_OK) return puts(tigon_last_error(context)), 1;
 *     printf("%f %f\n", y[0][0], y[1][3]);
 *     tigon_context_destroy(context);
 *   }
 *
 *   cc example.c $(pkg-config --cflags --libs tigon)
 */
#ifndef TIGON_TIGON_H
#define TIGON_TIGON_H

#include <tigon/base.h>
#include <tigon/context.h>
#include <tigon/dlpack.h>
#include <tigon/opencl.h>
#include <tigon/op/adamw.h>
#include <tigon/op/attention.h>
#include <tigon/op/attn_res.h>
#include <tigon/op/cross_entropy.h>
#include <tigon/op/divergence.h>
#include <tigon/op/dyt.h>
#include <tigon/op/embedding.h>
#include <tigon/op/fused_add_rms_norm.h>
#include <tigon/op/fused_linear_cross_entropy.h>
#include <tigon/op/fused_linear_divergence.h>
#include <tigon/op/fused_linear_policy.h>
#include <tigon/op/fused_linear_preference.h>
#include <tigon/op/fused_linear_topk_divergence.h>
#include <tigon/op/fused_moe.h>
#include <tigon/op/geglu.h>
#include <tigon/op/group_norm.h>
#include <tigon/op/layer_norm.h>
#include <tigon/op/linear.h>
#include <tigon/op/linear_logprob.h>
#include <tigon/op/mhc_coeffs.h>
#include <tigon/op/mhc_post_res.h>
#include <tigon/op/mlp.h>
#include <tigon/op/modulated_rms_norm.h>
#include <tigon/op/multi_token_attention.h>
#include <tigon/op/policy_loss.h>
#include <tigon/op/poly_norm.h>
#include <tigon/op/preference_loss.h>
#include <tigon/op/relu_squared.h>
#include <tigon/op/rms_norm.h>
#include <tigon/op/rope.h>
#include <tigon/op/scale.h>
#include <tigon/op/softmax.h>
#include <tigon/op/sparsemax.h>
#include <tigon/op/swiglu.h>
#include <tigon/op/topk_divergence.h>
#include <tigon/op/vocab_parallel_cross_entropy.h>
#include <tigon/schema.h>

#endif
