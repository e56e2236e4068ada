# skein_cuda: all *.cu files of src/ and parts/, beside libskein and not inside it.
# Compiling needs nvcc and no GPU.  Without nvcc everything else is built all the same.  It takes
# three times as long as all the rest, so ./start asks for it only where a GPU could run it.
find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
if(SKEIN_CUDA STREQUAL "here" AND (NVCC OR CMAKE_CUDA_COMPILER))
  file(GLOB gpus /dev/nvidia[0-9]* /dev/dxg) # dxg: Linux inside of Windows
  if(NOT gpus)
    message(STATUS "CUDA: no GPU is here, so the GPU half is left out; "
                   "cmake --preset release && cmake --build --preset release builds it")
    return()
  endif()
endif()
if(NVCC AND NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${NVCC})
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90)
endif()
foreach(arch ${CMAKE_CUDA_ARCHITECTURES})
  if(arch MATCHES "^[0-9]+" AND CMAKE_MATCH_0 LESS 90)
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=${arch}: kernels of skein need 90 (Hopper) or "
                        "later; build with -DSKEIN_CUDA=OFF for a machine with an older GPU")
  endif()
endforeach()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(SKEIN_CUDA MATCHES "^(auto|here)$")
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
# Subnormal numbers are zero, as on the CPU: src/base/entry.h.
set(skein_cuda_flags -ftz=true -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-fno-exceptions
    "-Xcompiler=-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=")
if(werror)
  list(APPEND skein_cuda_flags --Werror=all-warnings)
endif()
# Kernels that compile in less than half the time and run slower; nvcc 12.8 and later.
if(SKEIN_CUDA_QUICK AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  message(STATUS "CUDA: kernels are compiled quickly, for a host that cannot run them")
  list(APPEND skein_cuda_flags -Ofc=max)
endif()

# parts/KIND/NAME.cu is the GPU half of a part, or a part that only a GPU has; their tables are made
# like all others.
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS src/*.cu)
file(GLOB halves RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS parts/*/*.cu)
if(cuda_sources)
  find_package(CUDAToolkit REQUIRED)
  list(SORT halves)
  set(half_tables "")
  set(half_folders ${halves})
  list(TRANSFORM half_folders REPLACE "^parts/([^/]+)/.*" "\\1")
  list(REMOVE_DUPLICATES half_folders)
  foreach(folder ${half_folders})
    set(kind ${folder}_kernel)
    if(folder STREQUAL "op")
      set(kind kernel)
    elseif(NOT folder IN_LIST part_kinds)
      set(kind ${folder})
    endif()
    set(files ${halves})
    list(FILTER files INCLUDE REGEX "^parts/${folder}/")
    skein_table(${kind} ${kind} ${files})
    list(APPEND half_tables ${CMAKE_BINARY_DIR}/parts/${kind}.c)
  endforeach()
  add_library(skein_cuda STATIC ${cuda_sources} ${halves} ${half_tables})
  target_include_directories(skein_cuda PUBLIC src include)
  target_compile_options(skein_cuda PUBLIC "$<$<COMPILE_LANGUAGE:CUDA>:${skein_cuda_flags}>")
  target_link_libraries(skein_cuda PRIVATE $<BUILD_INTERFACE:skein_flags>
                                   PUBLIC skein CUDA::cudart_static ${CMAKE_DL_LIBS})
  # libskein asks for these weakly; nobody else would fetch them out of the archive.
  foreach(symbol device_cuda kernel_parts optim_kernel_parts codec_kernel_parts inst_kernels_cuda lt_run
                 norm_grad xent_rows nccl_cuda)
    target_link_options(skein_cuda INTERFACE LINKER:-u,sk_${symbol})
  endforeach()
endif()
