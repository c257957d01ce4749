/* Runs an exported model without Python: gcc main.c model.so -Wl,-rpath,'$ORIGIN' && ./a.out
   Fills the inputs, runs the model in two threads on one instance and says what came out. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

typedef struct {
    model *instance;
    void **inputs, **outputs;
    int status;
} Call;

static void **allocate(int32_t count, const model_tensor *(*describe)(int32_t)) {
    void **tensors = calloc(count, sizeof *tensors);
    for (int32_t n = 0; n < count; n++) {
        const model_tensor *tensor = describe(n);
        tensors[n] = calloc(1, tensor->nbytes);
        if (!strcmp(tensor->dtype, "float32")) {
            float *values = tensors[n];
            for (size_t i = 0; i < tensor->nbytes / sizeof *values; i++) values[i] = (float)(i % 7) - 3;
        }
    }
    return tensors;
}

static void release(int32_t count, void **tensors) {
    for (int32_t n = 0; n < count; n++) free(tensors[n]);
    free(tensors);
}

static void *run(void *given) {
    Call *call = given;
    call->status = model_run(call->instance, (const void *const *)call->inputs, call->outputs);
    return NULL;
}

int main(int count, char **arguments) {
    model *instance;
    int status = model_create(&instance, 0, count > 1 ? arguments[1] : NULL);
    if (status) {
        fprintf(stderr, "create: %s\n", model_message(status));
        return 1;
    }
    void **inputs = allocate(model_input_count(), model_input);
    Call calls[2];
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) {
        calls[n] = (Call){instance, inputs, allocate(model_output_count(), model_output), 0};
        pthread_create(&threads[n], NULL, run, &calls[n]);
    }
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    for (int n = 0; n < 2; n++) {
        if (calls[n].status) {
            fprintf(stderr, "run: %s\n", model_message(calls[n].status));
            return 1;
        }
    }
    for (int32_t n = 0; n < model_output_count(); n++) {
        const model_tensor *tensor = model_output(n);
        if (memcmp(calls[0].outputs[n], calls[1].outputs[n], tensor->nbytes)) return 2;
        printf("%s %s", tensor->name, tensor->dtype);
        for (int32_t d = 0; d < tensor->rank; d++) printf(" %lld", (long long)tensor->shape[d]);
        const float *values = calls[0].outputs[n];
        double sum = 0;
        for (size_t i = 0; i < tensor->nbytes / sizeof *values; i++) sum += values[i];
        printf(": sum %.4f\n", sum);
    }
    for (int n = 0; n < 2; n++) release(model_output_count(), calls[n].outputs);
    release(model_input_count(), inputs);
    model_destroy(instance);
    return 0;
}
