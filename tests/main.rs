mod support;
#[tokio::test]
async fn up() {
    let t = std::time::Instant::now();
    let bed = support::bed::Bed::shared().await;
    eprintln!("up {:?} {:?}", t.elapsed(), bed.control_plane().pids());
}
