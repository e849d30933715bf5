/* What the stand-in for CUDA's driver tells that for cuBLAS (cublas_standin.c). */

int standin_has_context(void) { return current && !sticky; }
uint64_t standin_seen(uint64_t at, uint64_t bytes) { return seen(at, bytes); }
void standin_fail(void) { sticky = ILLEGAL_ADDRESS; }

int standin_push_task(struct stream *s, void (*task)(void *), void *argument) {
    int known = stream_count == 256;
    for (int i = 0; i < stream_count; i++) known |= streams[i] == s;
    if (!known || s->closed) return INVALID_VALUE;
    push(s, (struct op){.kind = TASK, .task = task, .argument = argument});
    return OK;
}
