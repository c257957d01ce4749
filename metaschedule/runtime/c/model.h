/* MODEL: a model compiled by metaschedule for @TARGET@.

@TENSORS@

   Tensors are dense and row-major, aligned to their element; no output may overlap another tensor. float16 and
   bfloat16 are passed as their bits (uint16_t), bool as one byte.

   There is no global state: instances are independent, and one instance may run in several threads at once
   (each call has memory of its own, kept for the next). */
#ifndef METASCHEDULE_MODEL_H
#define METASCHEDULE_MODEL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct MODEL MODEL; /* an instance */

typedef struct {
    const char *name;
    const char *dtype; /* "float32", "int64", ... as NumPy spells them */
    int32_t rank;
    const int64_t *shape;
    size_t nbytes;
} MODEL_tensor;

/* What the model takes and gives, in order; NULL beyond the last. */
int32_t MODEL_input_count(void);
int32_t MODEL_output_count(void);
const MODEL_tensor *MODEL_input(int32_t number);
const MODEL_tensor *MODEL_output(int32_t number);

/* Bytes that one call needs for intermediate results. */
size_t MODEL_memory(void);

/* Make an instance that uses at most so many threads; 0: as many as OpenMP says at each call. @WEIGHTS@
   Gives 0, or another status and no instance. */
int MODEL_create(MODEL **instance, int32_t threads, const char *weights);

/* Compute the outputs, which the caller has allocated. Gives 0 or another status; what the outputs hold is
   then undefined. */
int MODEL_run(MODEL *instance, const void *const *inputs, void *const *outputs);

/* Free an instance; no thread may be running it. */
void MODEL_destroy(MODEL *instance);

/* What a status means. The text lives as long as the library. */
const char *MODEL_message(int status);

#ifdef __cplusplus
}
#endif
#endif
