// A tensor in the DLA's layout becomes plain float32 [n, c, h, w], dequantized.

// One thread for each element of the result. Strides in elements.
extern "C" __global__ void unpack(const Element* tensor, float* out, int n, int c, int h, int w,
                                  int lanes, int batch_stride, int group_stride, int row_stride,
                                  int pixel_stride, float scale) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= n * c * h * w) return;
  const int column = index % w, row = index / w % h, channel = index / w / h % c;
  const long long batch = index / w / h / c;
  const Element element =
      tensor[batch * batch_stride + channel / lanes * (long long)group_stride + row * row_stride +
             column * pixel_stride + channel % lanes];
  out[index] = to_float(element) * scale;
}
