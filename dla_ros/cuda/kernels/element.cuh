// The element type of a tensor and its way from and to float; precedes every kernel's source.
//
// ELEMENT: 0 float16, 1 float32, 2 int8, 3 uint8.

#if ELEMENT == 0
typedef unsigned short Element;
#elif ELEMENT == 1
typedef float Element;
#elif ELEMENT == 2
typedef signed char Element;
#else
typedef unsigned char Element;
#endif

__device__ float half_to_float(unsigned short bits) {
#ifdef DLA_ROS_EMULATED
  _Float16 half;
  memcpy(&half, &bits, sizeof half);
  return half;
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#endif
}

__device__ float to_float(Element element) {
#if ELEMENT == 0
  return half_to_float(element);
#else
  return element;
#endif
}

// An element of a type that is known at run time only.
__device__ float load(const void* data, int element, long long place) {
  if (element == 0) return half_to_float(((const unsigned short*)data)[place]);
  if (element == 1) return ((const float*)data)[place];
  if (element == 2) return ((const signed char*)data)[place];
  return ((const unsigned char*)data)[place];
}

__device__ Element to_element(float value) {
#if ELEMENT == 0
#ifdef DLA_ROS_EMULATED
  const _Float16 half = static_cast<_Float16>(value);
  Element element;
  memcpy(&element, &half, sizeof element);
  return element;
#else
  Element element;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(value));
  return element;
#endif
#elif ELEMENT == 1
  return value;
#elif ELEMENT == 2
  return (Element)fminf(fmaxf(rintf(value), -128.0f), 127.0f);
#else
  return (Element)fminf(fmaxf(rintf(value), 0.0f), 255.0f);
#endif
}

