#pragma once
// Device sources compile twice from the same text: by nvcc into namespace quintet::cuda, and by the
// host's compiler (with QUINTET_EMULATE) into quintet::emulated.
#ifdef QUINTET_EMULATE
#define QT_GPU emulated
#else
#define QT_GPU cuda
#endif
