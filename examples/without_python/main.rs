// Runs an exported model from Rust through its C interface: rustc main.rs -l dylib:+verbatim=model.so -L .
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null;

#[repr(C)]
struct Tensor {
    name: *const c_char,
    dtype: *const c_char,
    rank: i32,
    shape: *const i64,
    nbytes: usize,
}

extern "C" {
    fn model_input_count() -> i32;
    fn model_output_count() -> i32;
    fn model_input(number: i32) -> *const Tensor;
    fn model_output(number: i32) -> *const Tensor;
    fn model_create(instance: *mut *mut c_void, threads: i32, weights: *const c_char) -> c_int;
    fn model_run(instance: *mut c_void, inputs: *const *const c_void, outputs: *const *mut c_void) -> c_int;
    fn model_destroy(instance: *mut c_void);
    fn model_message(status: c_int) -> *const c_char;
}

struct Model(*mut c_void);

fn check(status: c_int) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(model_message(status)) }.to_string_lossy().into_owned())
}

impl Model {
    fn new(threads: i32) -> Result<Model, String> {
        let mut instance = std::ptr::null_mut();
        check(unsafe { model_create(&mut instance, threads, null()) })?;
        Ok(Model(instance))
    }

    fn run(&self, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, String> {
        let sizes: Vec<usize> =
            (0..unsafe { model_output_count() }).map(|n| unsafe { (*model_output(n)).nbytes } / 4).collect();
        let mut outputs: Vec<Vec<f32>> = sizes.iter().map(|&size| vec![0.0; size]).collect();
        let given: Vec<*const c_void> = inputs.iter().map(|t| t.as_ptr().cast()).collect();
        let taken: Vec<*mut c_void> = outputs.iter_mut().map(|t| t.as_mut_ptr().cast()).collect();
        check(unsafe { model_run(self.0, given.as_ptr(), taken.as_ptr()) })?;
        Ok(outputs)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { model_destroy(self.0) }
    }
}

fn main() -> Result<(), String> {
    let model = Model::new(0)?;
    let inputs: Vec<Vec<f32>> = (0..unsafe { model_input_count() })
        .map(|n| {
            let tensor = unsafe { &*model_input(n) };
            (0..tensor.nbytes / 4).map(|i| (i % 7) as f32 - 3.0).collect()
        })
        .collect();
    for (n, output) in model.run(&inputs)?.iter().enumerate() {
        let tensor = unsafe { &*model_output(n as i32) };
        let name = unsafe { CStr::from_ptr(tensor.name) }.to_string_lossy();
        let dtype = unsafe { CStr::from_ptr(tensor.dtype) }.to_string_lossy();
        let shape = unsafe { std::slice::from_raw_parts(tensor.shape, tensor.rank as usize) };
        let sizes: String = shape.iter().map(|size| format!(" {size}")).collect();
        println!("{name} {dtype}{sizes}: sum {:.4}", output.iter().map(|&x| x as f64).sum::<f64>());
    }
    Ok(())
}
