# skein_cuda: parts/op/*.cu and src/device/*.cu, beside libskein and not inside it.
# Compiling needs nvcc and no GPU.  Without nvcc everything else is built all the same.
find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
if(NVCC AND NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${NVCC})
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90)
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(SKEIN_CUDA STREQUAL "auto")
    message(STATUS "CUDA: no working nvcc found, so skein_cuda is not built")
    return()
  endif()
  message(FATAL_ERROR "SKEIN_CUDA=${SKEIN_CUDA} needs a working nvcc; give -DCMAKE_CUDA_COMPILER=PATH")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, "
               "sm_${CMAKE_CUDA_ARCHITECTURES}")

# -Wconversion and the like are for C; here the front end of nvcc adds warnings of its own.
set(skein_cuda_flags -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-fno-exceptions
    "-Xcompiler=-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=")
if(werror)
  list(APPEND skein_cuda_flags --Werror=all-warnings)
endif()

# parts/op/NAME.cu is the GPU half of an op; their table is made like all others.
file(GLOB cuda_sources CONFIGURE_DEPENDS src/device/*.cu)
file(GLOB kernels RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS parts/op/*.cu)
if(cuda_sources)
  find_package(CUDAToolkit REQUIRED)
  list(SORT kernels)
  skein_table(kernel kernel ${kernels})
  add_library(skein_cuda STATIC ${cuda_sources} ${kernels} ${CMAKE_BINARY_DIR}/parts/kernel.c)
  target_include_directories(skein_cuda PUBLIC src include)
  target_compile_options(skein_cuda PUBLIC "$<$<COMPILE_LANGUAGE:CUDA>:${skein_cuda_flags}>")
  target_link_libraries(skein_cuda PRIVATE $<BUILD_INTERFACE:skein_flags>
                                   PUBLIC skein CUDA::cudart_static)
  # libskein asks for these two weakly; nobody else would fetch them out of the archive.
  target_link_options(skein_cuda INTERFACE LINKER:-u,sk_device_cuda LINKER:-u,sk_kernel_parts)
endif()
