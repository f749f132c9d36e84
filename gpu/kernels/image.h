/* The kernels compiled for CUDA: cubins of several architectures and PTX, in one image. */
#ifndef TP_GPU_IMAGE_H
#define TP_GPU_IMAGE_H

const void *tp_cuda_image(void);

#endif
