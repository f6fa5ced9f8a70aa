# fusionkit for macOS and Windows: JupyterLab on the notebooks, with the graphs that an NPU gets (target npu-dry).
#   docker build -t fusionkit .
#   docker run --rm -it -p 8888:8888 fusionkit                     JupyterLab; the address is in its output
#   docker run --rm -v "$PWD/evidence:/fusionkit/evidence" fusionkit fusionkit run parameters/flux-tiny.yaml
FROM python:3.11-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /fusionkit
COPY . .
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -c constraints.txt -e ".[notebooks,models]"
ENV TORCH_DEVICE_BACKEND_AUTOLOAD=0 HF_HUB_OFFLINE=1
# The wheel and the stand-in become part of the image, so that a container needs no network.
RUN fusionkit doctor --target npu-dry
EXPOSE 8888
CMD ["python", "-m", "jupyterlab", "--ip=0.0.0.0", "--allow-root", "--no-browser", "--LabApp.default_url=/lab/tree/notebooks"]
