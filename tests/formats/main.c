#include "support.h"

int main(void)
{
    memory_reset();
    return run_dtypes() + run_layout() + run_safetensors() + run_gguf() == 0 ? 0 : 1;
}
