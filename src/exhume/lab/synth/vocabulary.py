"""What functions are called, by language: words that a synthetic recording joins into the names of its frames."""

from typing import Final


def _words(text: str) -> list[str]:
    return text.split()


GO_PACKAGES: Final = _words("""
    k8s.io/kubernetes/pkg/kubelet k8s.io/kubernetes/pkg/kubelet/cm k8s.io/kubernetes/pkg/kubelet/pleg
    k8s.io/client-go/tools/cache k8s.io/apimachinery/pkg/util/wait github.com/google/cadvisor/manager
    github.com/opencontainers/runc/libcontainer/cgroups/fs github.com/containerd/containerd/services/tasks
    github.com/containerd/ttrpc google.golang.org/grpc google.golang.org/grpc/internal/transport
    github.com/prometheus/client_golang/prometheus github.com/prometheus/procfs encoding/json net/http
    compress/flate reflect runtime internal/poll bufio regexp strconv sync syscall os
    google.golang.org/protobuf/proto crypto/tls golang.org/x/net/http2
""")
GO_TYPES: Final = _words("""
    (*Server) (*Manager) (*Client) (*reader) (*Decoder) (*Registry) (*FD) (*loop) (*conn) (*Collector) (*pool)
    (*Stream)
""")
GO_METHODS: Final = _words("""
    Read Write Sync Run Update Collect Gather decode serve handle next flush GetStats housekeeping watch Lock
""")
GO_LEAVES: Final = _words("""
    runtime.mallocgc runtime.scanobject runtime.memmove runtime.mapaccess2_faststr runtime.findrunnable
    runtime.gcDrain runtime.heapBitsSetType runtime.futex runtime.usleep internal/runtime/syscall.Syscall6
    strconv.ParseUint runtime.growslice
""")
PYTHON_MODULES: Final = _words("""
    torch/nn/modules/module.py torch/optim/adamw.py torch/utils/data/dataloader.py torch/distributed/c10d.py
    ray/_private/worker.py ray/rllib/evaluation/sampler.py ray/data/_internal/execution.py
    numpy/core/fromnumeric.py transformers/modeling_llama.py asyncio/events.py threading.py
    pyarrow/parquet/core.py cloudpickle/cloudpickle.py json/decoder.py concurrent/futures/thread.py
""")
PYTHON_FUNCTIONS: Final = _words("""
    forward backward step _call_impl __next__ collate run get put _sample loads dumps apply poll _fetch
""")
PYTHON_INTERPRETER: Final = _words("""
    _PyEval_EvalFrameDefault _PyFunction_Vectorcall PyObject_Call _PyObject_MakeTpCall method_vectorcall
    PyEval_EvalCode
""")
NATIVE_NAMESPACES: Final = _words("""
    at::native c10 torch::autograd ray::core ray::gcs plasma grpc_core boost::asio::detail absl::lts Envoy::Http
    Envoy::Network google::protobuf std::__detail G1 nvidia jemalloc event dict rb_vm
""")
NATIVE_CLASSES: Final = _words("""
    Engine TensorIterator Scheduler Task ConnectionImpl Dispatcher ObjectStore Arena Allocator Codec Buffer Queue
""")
NATIVE_METHODS: Final = _words("""
    run execute dispatch process onData allocate release poll evaluate serialize insert lookup vectorized_loop
""")
NATIVE_LIBRARIES: Final = _words("""
    /opt/conda/lib/libtorch_cpu.so /opt/conda/lib/libc10.so /opt/conda/lib/libcudart.so.12
    /usr/lib/x86_64-linux-gnu/libcuda.so.550.54 /opt/conda/lib/libmkl_core.so.2
    /usr/lib/x86_64-linux-gnu/libstdc++.so.6
""")
NATIVE_LEAVES: Final = _words("""
    __memmove_avx_unaligned_erms _int_malloc _int_free malloc cfree __memset_avx2_erms pthread_mutex_lock
    __memcmp_avx2_movbe
""")
JAVA_PACKAGES: Final = _words("""
    java.util.concurrent org.apache.kafka.common.network io.netty.channel.nio org.springframework.web
    com.fasterxml.jackson.databind org.apache.spark.sql.execution java.util.HashMap sun.nio.ch
    org.apache.lucene.search
""")
JAVA_METHODS: Final = _words("""
    run poll read write handle doFilter serialize getNode select invoke next accept compute encode
""")
