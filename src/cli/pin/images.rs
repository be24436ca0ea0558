//! Asks registries for the images of new versions.

use super::report::{Outcome, Report, Result};
use super::{File, Flags};
use crate::cli::channel_access::Digests;
use refit_api::image::ImageAnswer;
use refit_base::version::tag::munge;
use refit_offline::gitops::pin::{
    PatchedImage, PinRequest, images_to_run, patched_image_to_run, versioned_images,
};

/// Resolves the digests of all images that follow a version. A Plan with an unresolved image stays unchanged.
pub(super) fn pin(flags: &Flags, outcomes: &mut [Outcome], files: &mut [File]) -> anyhow::Result<()> {
    let requests = files.iter().flat_map(|file| &file.requests);
    let images = requests.flat_map(|(_, request)| versioned_images(&request.plan, &request.version));
    let digests: Digests = flags.channels.digests(images.collect())?;
    for file in files {
        file.requests.retain_mut(|(index, request)| {
            let outcome = &mut outcomes[*index];
            if let Some(PatchedImage { image, place }) = patched_image_to_run(request) {
                // What is there counts for other overlays, too.
                let why = format!(
                    "--digest does not change the image {image} in {place}, which follows this version; write the image into the \
                     patch, beside the version"
                );
                (outcome.result, outcome.why) = (Result::Failed, Some(why));
                return false;
            }
            for image in versioned_images(&request.plan, &request.version) {
                match digests.get(&image) {
                    Some(Ok(digest)) => {
                        let pinned = format!("{image}@{digest}");
                        if !request.plan.images.iter().any(|(_, image)| *image == pinned) {
                            outcome.result = Result::Changed;
                            outcome.images.push(pinned);
                        }
                        request.digests.insert(image, digest.clone());
                    }
                    Some(Err(error)) => {
                        (outcome.result, outcome.why) =
                            (Result::Failed, Some(format!("image {image}: {error}")));
                        return false;
                    }
                    None => {}
                }
            }
            true
        });
    }
    Ok(())
}

/// Keeps Plans at their version if the registry does not have an image of the new one. `--to` asks nobody.
pub(super) fn keep_without(flags: &Flags, report: &mut Report, files: &mut [File]) -> anyhow::Result<()> {
    let new_images = |request: &PinRequest| {
        let now = request.plan.version.as_deref().map(munge);
        let is_new = now.as_ref() != Some(&munge(&request.version));
        if is_new {
            images_to_run(request)
        } else {
            Vec::new()
        }
    };
    let requests = files.iter().flat_map(|file| &file.requests);
    let images = requests.flat_map(|(_, request)| new_images(request)).collect();
    let answers = flags.channels.look_up(images)?;
    for (image, answer) in &answers {
        if let ImageAnswer::Unknown(why) = answer {
            report.notes.push(format!(
                "refit cannot ask the registry whether image {image} exists: {why}"
            ));
        }
    }
    for file in files {
        file.requests.retain(|(index, request)| {
            let missing = new_images(request).into_iter().find_map(|image| match answers.get(&image)? {
                ImageAnswer::Missing(answer) => Some((image, answer)),
                ImageAnswer::Found(_) | ImageAnswer::Unknown(_) => None,
            });
            let Some((image, answer)) = missing else {
                return true;
            };
            let outcome = &mut report.outcomes[*index];
            (outcome.result, outcome.remark) = (Result::Kept, None);
            outcome.why = Some(format!(
                "its channel gives {}, and the registry has no image {image} ({answer}); run refit pin again once it is published",
                request.version
            ));
            false
        });
    }
    Ok(())
}
